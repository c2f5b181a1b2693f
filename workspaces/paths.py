"""Validation of workspace paths: the only way from text to a path in a workspace.

A path is valid if it means the same file everywhere: on Linux and macOS disks, in an S3 key, in a git
tree, in a URL, and after a copy to Windows. One strict policy in this module serves every entry point.
No other code decides whether a name is valid. Only the constructor makes a `WorkspacePath`, and it
refuses invalid text. So holding a `WorkspacePath` *is* the proof that it was checked.

Two paths that differ only in case (or in how case folds) are one name on half of the world's disks.
`folded` returns the form that they share. Code that creates a file uses it to look for such twins.

This module opens nothing. `localfs.safe_open` opens files and follows no link.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from workspaces.errors import Refused
from workspaces.invisible_characters import JOINERS, unseen

PATH_BYTES_MAX = 1024
"""The limit of an S3 key is 1 024 bytes. The prefix and namespace in front of a path are short for it."""

PART_BYTES_MAX = 200
"""File systems allow 255 bytes; the rest is room for temporary and conflict names."""

PARTS_MAX = 20

_FORBIDDEN = frozenset('\\:*?"<>|%')
_DEVICE = re.compile(r"(con|prn|aux|nul|clock\$|conin\$|conout\$|(com|lpt)[0-9¹²³])", re.IGNORECASE)
_RESERVED = re.compile(r"(\.git.*|git~[0-9]+|\.harness.*)", re.IGNORECASE)


class WorkspacePath(str):
    """A valid path of a file in a workspace: `/`-separated, relative, NFC."""

    __slots__ = ()

    def __new__(cls, text: str) -> WorkspacePath:
        if isinstance(text, cls):
            return text
        broken = broken_rule(text)
        if broken is not None:
            raise Refused("path", text, broken)
        return super().__new__(cls, text)

    @property
    def name(self) -> str:
        return self.rpartition("/")[2]


@lru_cache(maxsize=65_536)  # creating a file folds every neighbour of the new name
def folded(name: str) -> str:
    """Return a form that is equal for all names that a case-insensitive file system treats as one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def broken_rule(text: str) -> str | None:
    """Return the first path rule that `text` breaks, phrased to follow the value. None if it is valid."""
    if not text:
        return "is empty"
    # Checked before anything that costs time or memory on a hostile megabyte.
    if len(text) > PATH_BYTES_MAX:
        return f"is longer than {PATH_BYTES_MAX} bytes"
    return _broken_rule(text)


@lru_cache(maxsize=65_536)  # the same names come repeatedly: room for a whole workspace and more
def _broken_rule(text: str) -> str | None:
    return _broken_by_characters(text) or _broken_by_length(text) or _broken_by_a_part(text)


def _broken_by_characters(text: str) -> str | None:
    if text.isascii() and text.isprintable() and _FORBIDDEN.isdisjoint(text):
        return None  # fast path for nearly every name: six times faster
    for character in text:
        if character in _FORBIDDEN:
            return f"contains {character!r}, which some systems do not allow in a name"
        kind = unseen(character)
        if kind is not None:
            return f"contains {kind} (U+{ord(character):04X})"
    if not unicodedata.is_normalized("NFC", text):
        return "is not in Unicode normal form C"
    return None


def _broken_by_length(text: str) -> str | None:
    if len(text.encode()) > PATH_BYTES_MAX:
        return f"is longer than {PATH_BYTES_MAX} bytes"
    parts = text.split("/")
    if len(parts) > PARTS_MAX:
        return f"has more than {PARTS_MAX} parts"
    if any(len(part.encode()) > PART_BYTES_MAX for part in parts):
        return f"has a part longer than {PART_BYTES_MAX} bytes"
    return None


def _broken_by_a_part(text: str) -> str | None:
    if text.startswith("/"):
        return "is absolute: paths are relative to the workspace's root"
    for part in text.split("/"):
        rule = _broken_part(part)
        if rule is not None:
            return rule
    return None


def _broken_part(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return "has an empty, '.' or '..' part"
    if part[0] in "-~":
        return f"has a part that starts with {part[0]!r}"
    if part[-1] in ". ":
        return "has a part that ends with a dot or a space"
    if _DEVICE.fullmatch(part.partition(".")[0].rstrip(" ")):
        return "has a part that is a device name on Windows"
    if _RESERVED.fullmatch(re.sub(f"[{JOINERS}]", "", part)):
        return "has a part whose name is reserved for the system"
    return None
