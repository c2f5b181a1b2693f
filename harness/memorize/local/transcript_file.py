"""Read a transcript of JSON lines in bounded memory: plain, or compressed by zstd.

A line is parsed when it is met and forgotten then. What stays of it is its place, so that the few lines that
are shown can be read again. A compressed file is unpacked to a temporary file first, so that places are those
of the plain text, as other files name them.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from pydantic_core import from_json

from workspaces.errors import Unavailable

LINE_BYTES_MAX = 16 * 2**20
"""Bytes of a line that is parsed. Longer lines are pictures and whole files: they are skipped and counted."""

CHUNK_BYTES = 2**20
UNPACKED_BYTES_MAX = 4 * 2**30
"""Bytes to which a compressed transcript may unpack. A transcript of months has a tenth of it."""


@dataclass(slots=True)
class SkippedLines:
    """The lines that were not shown, by the reason."""

    malformed: int = 0
    too_long: int = 0
    unknown: Counter[str] = field(default_factory=Counter[str])
    """Lines of unknown types, by type."""

    def as_json(self) -> dict[str, Any]:
        return {
            "malformed": self.malformed,
            "too_long": self.too_long,
            "unknown": dict(sorted(self.unknown.items())),
        }


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A line as it was parsed, with its place."""

    file: Path
    index: int
    """Number of the line in its file, counted from 0."""
    offset: int
    event: Mapping[str, Any]


@contextmanager
def opened_transcript(file: Path) -> Generator[BinaryIO]:
    """Open a transcript as its plain text.

    Raises: Unavailable.
    """
    try:
        if file.suffix != ".zst":
            with file.open("rb") as plain:
                yield plain
            return
        with tempfile.TemporaryFile() as unpacked:
            _unpack(file, unpacked)
            unpacked.seek(0)
            yield unpacked
    except OSError as error:
        raise Unavailable(f"transcript {file.name}", error.strerror or str(error)) from error


def read_lines(
    opened: BinaryIO, file: Path, skipped: SkippedLines, *, until: int | None = None
) -> Iterator[TranscriptLine]:
    """Yield the lines that are JSON objects, up to the byte `until`. Count the others."""
    index, offset = 0, 0
    while until is None or offset < until:
        line = opened.readline(LINE_BYTES_MAX + 1)
        if not line:
            return
        at, offset = offset, offset + len(line)
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            offset += _skip_rest(opened)
            skipped.too_long += 1
        elif (event := parsed_event(line)) is not None:
            yield TranscriptLine(file, index, at, event)
        elif line.strip():
            skipped.malformed += 1
        index += 1


def read_line(opened: BinaryIO, offset: int) -> Mapping[str, Any]:
    """Return the event at a place that `read_lines` named. It is empty if the file has changed since."""
    opened.seek(offset)
    return parsed_event(opened.readline(LINE_BYTES_MAX + 1)) or {}


def parsed_event(line: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object of a line, or None if it is none."""
    try:
        event = from_json(line)  # three times as fast as Python's own
    except ValueError:
        try:
            event = json.loads(line)  # it takes half of a surrogate pair, too
        except (ValueError, RecursionError):
            return None
    return cast("Mapping[str, Any]", event) if isinstance(event, dict) else None


def text_in(event: Mapping[str, Any], *names: str) -> str | None:
    """Return the text under these names, one inside the other, or None."""
    value: Any = event
    for name in names:
        if not isinstance(value, dict):
            return None
        value = cast("Mapping[str, Any]", value).get(name)
    return value if isinstance(value, str) else None


def object_in(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under this name; an empty one if there is none."""
    value = event.get(name)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """Return the objects in a list; none if the value is no list."""
    if not isinstance(value, list):
        return []
    items = cast("list[Any]", value)
    return [cast("Mapping[str, Any]", one) for one in items if isinstance(one, dict)]


def number_in(event: Mapping[str, Any], name: str) -> int | None:
    value = event.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _skip_rest(opened: BinaryIO) -> int:
    """Read to the end of a long line without keeping it. Return the number of bytes."""
    count = 0
    while chunk := opened.readline(CHUNK_BYTES):
        count += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return count


def _unpack(file: Path, into: BinaryIO) -> None:
    import zstandard

    count = 0
    try:
        with file.open("rb") as packed:
            reader = zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
                packed, read_across_frames=True
            )
            while chunk := reader.read(CHUNK_BYTES):
                count += len(chunk)
                if count > UNPACKED_BYTES_MAX:
                    raise Unavailable(f"transcript {file.name}", "it unpacks to too many bytes")
                into.write(chunk)
    except zstandard.ZstdError as error:
        raise Unavailable(f"transcript {file.name}", f"it is not valid zstd: {error}") from error
