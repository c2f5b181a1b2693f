"""A pack: many objects in one file, written at once, with the index by which they are found.

What arrives in a batch (a download, an import) would else be a file and a wait for the disk each. The two
files are made durable under temporary names and then named, the index last: git, and whoever reads, knows
a pack by its index, and what has that name is whole.

    pack     "PACK" 2 count | for each: kind and size, zlib of its bytes | SHA-1 of all that
    index    "\\377tOc" 2 | how many begin with each first byte or less | ids | CRC-32 | offsets | SHA-1s
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

BYTES_MAX = 2**31 - 1
"""An offset has 31 bits; of a larger pack the format of the index is another."""

_MAGIC = b"PACK"
_HEAD = struct.Struct(">4sII")
"""Magic, version, how many objects."""

_DIGEST_BYTES = 20

_NUMBERS = {"commit": 1, "tree": 2, "blob": 3}
_TEMPORARY = "tmp_pack_"
"""git's own name for it: `git prune` takes away what a killed writer leaves."""


class Packed(NamedTuple):
    kind: str
    """commit, tree or blob."""
    data: bytes


def write_pack(directory: Path, objects: Mapping[str, Packed], *, level: int) -> None:
    """These objects, by their ids, into `directory`; durable on return. OSError."""
    directory.mkdir(mode=0o700, exist_ok=True)
    parts = [_HEAD.pack(_MAGIC, 2, len(objects))]
    at = len(parts[0])
    found: list[tuple[bytes, int, int]] = []
    for object_id, (kind, data) in objects.items():
        part = _head(_NUMBERS[kind], len(data)) + zlib.compress(data, level)
        found.append((bytes.fromhex(object_id), zlib.crc32(part), at))
        parts.append(part)
        at += len(part)
    pack = b"".join(parts)
    checksum = _digest(pack)
    name = f"pack-{checksum.hex()}"
    temporary = [_written(directory, part) for part in (pack + checksum, _index(found, checksum))]
    for path, suffix in zip(temporary, (".pack", ".idx"), strict=True):
        path.rename(directory / f"{name}{suffix}")


def joined(packs: Sequence[bytes]) -> bytes | None:
    """Several packs as one: deltas point back by distance or by id, so each may stand behind others. None
    where one of them is none, or damaged. An object that is in two of them is in the joined one twice."""
    bodies: list[bytes | memoryview] = []
    count = 0
    for pack in packs:
        head, end = pack[: _HEAD.size], len(pack) - _DIGEST_BYTES
        if end < _HEAD.size or _digest(pack[:end]) != pack[end:]:
            return None
        magic, version, objects = _HEAD.unpack(head)
        if (magic, version) != (_MAGIC, 2):
            return None
        count += objects
        bodies.append(memoryview(pack)[_HEAD.size : end])
    if count >= 2**32:
        return None
    whole = b"".join((_HEAD.pack(_MAGIC, 2, count), *bodies))
    return whole + _digest(whole)


def fits(objects: Mapping[str, Packed]) -> bool:
    """Even should nothing of it be compressible."""
    return sum(len(one.data) + 1024 for one in objects.values()) < BYTES_MAX


def _head(number: int, size: int) -> bytes:
    """Kind and size, least bits first: three bits and four in the first byte, seven in each other."""
    byte, size = number << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    head.append(byte)
    return bytes(head)


def _index(found: list[tuple[bytes, int, int]], checksum: bytes) -> bytes:
    found.sort()
    ids = [one for one, _, _ in found]
    counts = [bisect_right(ids, bytes([first]) + b"\xff" * 19) for first in range(256)]
    body = b"".join(
        (
            b"\xfftOc" + struct.pack(">I", 2),
            struct.pack(">256I", *counts),
            b"".join(ids),
            struct.pack(f">{len(found)}I", *(crc for _, crc, _ in found)),
            struct.pack(f">{len(found)}I", *(at for _, _, at in found)),
            checksum,
        )
    )
    return body + _digest(body)


def _written(directory: Path, data: bytes) -> Path:
    path = directory / f"{_TEMPORARY}{secrets.token_hex(6)}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return path


def _digest(data: bytes) -> bytes:
    return sha1(data, usedforsecurity=False).digest()
