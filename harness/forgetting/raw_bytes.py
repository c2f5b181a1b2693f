"""Look for a text in raw bytes: of a home, of a bucket with all its versions, of a backup.

This looks at bytes and not at what they mean. So it also finds what no reader of the harness would: a row
that SQLite has deleted, an object that no revision reaches, an old version of an object. It inflates zlib
streams and zstd frames wherever they begin, lets git unpack its packs, and undoes the escapes of JSON.

Only letters and digits are compared, because bytes around a text may look like letters. A short text is
compared word by word: it would be found inside of others.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from harness.forgetting.redaction import all_places, without_escapes
from harness.forgetting.workspace_search import files_below, objects_of
from workspaces.errors import Failure
from workspaces.forgetting.matcher import Matcher
from workspaces.forgetting.tombstone import is_short, tombstone_of
from workspaces.forgetting.words import words_of

INFLATED_BYTES_MAX = 64 * 2**20
"""Bytes that one stream is inflated to: the largest file of a workspace."""

WINDOW_BYTES = 8 * 2**20
"""Bytes that are looked at together. Windows overlap by more than a text may have."""

_OVERLAP_BYTES = 64 * 1024
_ZLIB = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
"""The beginning of a stream with the window that git and every common program use."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_OTHERS = re.compile(r"[\W_]+")
_KEY = b"a text that is looked for once has no secret key"


class RawPlace(NamedTuple):
    where: str
    """The path of a file, or the name of an object, and what in it."""


class RawSearch:
    """One text, ready to be looked for in bytes."""

    def __init__(self, text: str) -> None:
        words = words_of(text).texts
        self.matcher = Matcher([tombstone_of(text, _KEY, allow_short=True)], _KEY)
        self._letters = "" if is_short(words) else _letters_of(text)

    def in_directory(self, directory: Path) -> Iterator[RawPlace]:
        """Yield every file and every git object below a directory that holds the text, and every name."""
        for file in files_below(directory):
            name = str(file.relative_to(directory))
            if all_places(name, self.matcher):
                yield RawPlace("the name of a file")
            with suppress(OSError):
                if self.is_in(file.read_bytes()):
                    yield RawPlace(self.matcher.replaced(name))
        for git in sorted(directory.rglob("*.git")):
            with suppress(Failure):
                for one in objects_of(git):
                    if one.kind != "tree" and self._is_in_bytes(one.data):
                        yield RawPlace(f"{git.relative_to(directory)}, {one.kind} {one.id[:12]}")

    def is_in(self, data: bytes) -> bool:
        """Return True if the bytes hold the text, as they are or compressed."""
        return any(self._is_in_bytes(part) for part in unpacked(data))

    def _is_in_bytes(self, data: bytes) -> bool:
        step = WINDOW_BYTES - _OVERLAP_BYTES
        return any(
            self._is_in_text(data[start : start + WINDOW_BYTES].decode(errors="replace"))
            for start in range(0, max(1, len(data)), step)
        )

    def _is_in_text(self, text: str) -> bool:
        if not self._letters:
            return bool(all_places(text, self.matcher))
        plain = without_escapes(text) if "\\" in text else ""
        return self._letters in _letters_of(text) or self._letters in _letters_of(plain)


def unpacked(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and whatever streams of zlib and frames of zstd in them hold."""
    yield data
    view = memoryview(data)
    for found in _ZLIB.finditer(data):
        at = found.start()
        with suppress(zlib.error):
            yield zlib.decompressobj().decompress(view[at:], INFLATED_BYTES_MAX)
    if (at := data.find(_ZSTD)) >= 0:
        import zstandard

        while at >= 0:
            with suppress(zstandard.ZstdError):
                reader = zstandard.ZstdDecompressor().stream_reader(view[at:])
                yield reader.read(INFLATED_BYTES_MAX)
            at = data.find(_ZSTD, at + 4)


def _letters_of(text: str) -> str:
    """Return the letters and digits of a text, folded."""
    return _OTHERS.sub("", unicodedata.normalize("NFKC", text).casefold())
