"""A snapshot: the messages of a conversation at one moment, as compressed lines of JSON.

    {"position", "role", "type", "uuid", "timestamp", "text", "raw_event_index"}      one line each

Its hash is that of the lines before compression. So the same messages have the same hash everywhere. The
messages hold no secrets and no token counts: a reader of transcripts has taken them out. A snapshot is
written and read message by message, so that only its compressed bytes stand in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO

from harness.memorize.local.local_message import LocalMessage
from workspaces.errors import OverLimit, Unavailable
from workspaces.storage.blobs import BLOB_BYTES_MAX

SNAPSHOT_BYTES_MAX = BLOB_BYTES_MAX
"""Compressed bytes of a snapshot: what a blob store takes. They hold some hundred megabytes of text."""

LEVEL = 9
"""Compression of a snapshot. A thread of its own compresses, and takes as long as reading the messages."""

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class ArchiveSnapshot:
    hash: str
    messages: int
    data: bytes
    """The compressed lines."""


def take_snapshot(
    messages: Iterable[LocalMessage], see: Callable[[LocalMessage], None]
) -> ArchiveSnapshot:
    """Return a snapshot of the messages. `see` is called with each one.

    Raises: OverLimit; whatever reading the messages raises.
    """
    import zstandard  # commands that archive nothing do not wait for it

    digest, count, packed = sha256(), 0, BytesIO()
    with zstandard.ZstdCompressor(level=LEVEL, threads=1).stream_writer(
        packed, closefd=False
    ) as writer:
        for message in messages:
            see(message)
            line = _line(message)
            digest.update(line)
            writer.write(line)
            count += 1
            if packed.tell() > SNAPSHOT_BYTES_MAX:
                raise OverLimit(
                    "the archive of a conversation",
                    maximum=SNAPSHOT_BYTES_MAX,
                    actual=packed.tell(),
                    unit="bytes",
                )
    return ArchiveSnapshot(digest.hexdigest(), count, packed.getvalue())


def read_snapshot(data: bytes) -> Iterator[LocalMessage]:
    """Yield the messages of a snapshot.

    Raises: Unavailable if the bytes are damaged.
    """
    import zstandard

    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        rest = b""
        while chunk := reader.read(2**20):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _message(line)
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise Unavailable("the archive of a conversation", f"is damaged: {error}") from error


def rewritten(data: bytes, change: Callable[[str], str]) -> bytes:
    """Return a snapshot in which `change` was applied to every line of JSON. The same bytes if it changes
    none.

    Raises: Unavailable if the bytes are damaged.
    """
    import zstandard

    try:
        text = zstandard.ZstdDecompressor().decompressobj().decompress(data).decode()
    except (zstandard.ZstdError, ValueError) as error:
        raise Unavailable("the archive of a conversation", f"is damaged: {error}") from error
    lines = text.split("\n")
    changed = [change(line) if line else line for line in lines]
    if changed == lines:
        return data
    return zstandard.ZstdCompressor(level=LEVEL).compress("\n".join(changed).encode())


def _line(message: LocalMessage) -> bytes:
    return f"{_as_json(message.as_json())}\n".encode(errors="backslashreplace")


def _message(line: bytes) -> LocalMessage:
    said = json.loads(line)
    said["raw_index"] = said.pop("raw_event_index")
    return LocalMessage(**said)
