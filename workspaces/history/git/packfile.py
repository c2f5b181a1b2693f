"""Write a pack: one file with many objects, and the index that finds them.

Without packs, each object of a batch (a download, an import) would cost a file and a wait for the disk.
Both files are made durable under temporary names and then renamed, the index last. Git and every other
reader find a pack by its index, so a pack with its final name is complete.

    pack     "PACK" 2 count | for each object: kind and size, zlib of its bytes | SHA-1 of the above
    index    "\\377tOc" 2 | count of ids up to each first byte | ids | CRC-32 | offsets | SHA-1s
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

BYTES_MAX = 2**31 - 1
"""Largest pack. An offset has 31 bits; a larger pack needs another index format."""

_MAGIC = b"PACK"
_HEAD = struct.Struct(">4sII")
"""Magic, version, number of objects."""


_NUMBERS = {"commit": 1, "tree": 2, "blob": 3}
_TEMPORARY = "tmp_pack_"
"""Git's own prefix for temporary packs: `git prune` removes the remains of a killed writer."""


class Packed(NamedTuple):
    kind: str
    """`commit`, `tree` or `blob`."""
    data: bytes


def write_pack(directory: Path, objects: Mapping[str, Packed], *, level: int) -> None:
    """Write objects, keyed by their ids, as a pack into `directory`. The pack is durable on return.

    Raises: OSError when the disk cannot be written."""
    directory.mkdir(mode=0o700, exist_ok=True)
    parts = [_HEAD.pack(_MAGIC, 2, len(objects))]
    at = len(parts[0])
    entries: list[tuple[bytes, int, int]] = []
    for object_id, (kind, data) in objects.items():
        part = _head(_NUMBERS[kind], len(data)) + zlib.compress(data, level)
        entries.append((bytes.fromhex(object_id), zlib.crc32(part), at))
        parts.append(part)
        at += len(part)
    pack = b"".join(parts)
    checksum = _digest(pack)
    name = f"pack-{checksum.hex()}"
    contents = (pack + checksum, _index(entries, checksum))
    temporary = [_write_temporary(directory, content) for content in contents]
    for path, suffix in zip(temporary, (".pack", ".idx"), strict=True):
        path.rename(directory / f"{name}{suffix}")


def fits_in_pack(objects: Mapping[str, Packed]) -> bool:
    """Return True if a pack of these objects stays below BYTES_MAX, even if none of them compresses."""
    return sum(len(one.data) + 1024 for one in objects.values()) < BYTES_MAX


def _head(number: int, size: int) -> bytes:
    """Encode kind and size, least bits first. The first byte has three bits of kind and four of size; each
    further byte has seven of size."""
    byte, size = number << 4 | size & 15, size >> 4
    head = bytearray()
    while size:
        head.append(byte | 128)
        byte, size = size & 127, size >> 7
    head.append(byte)
    return bytes(head)


def _index(entries: list[tuple[bytes, int, int]], checksum: bytes) -> bytes:
    entries.sort()
    ids = [one for one, _, _ in entries]
    counts = [bisect_right(ids, bytes([first]) + b"\xff" * 19) for first in range(256)]
    body = b"".join(
        (
            b"\xfftOc" + struct.pack(">I", 2),
            struct.pack(">256I", *counts),
            b"".join(ids),
            struct.pack(f">{len(entries)}I", *(crc for _, crc, _ in entries)),
            struct.pack(f">{len(entries)}I", *(at for _, _, at in entries)),
            checksum,
        )
    )
    return body + _digest(body)


def _write_temporary(directory: Path, data: bytes) -> Path:
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
