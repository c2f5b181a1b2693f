"""The one door from text to a path in a workspace.

A path is valid when it means the same file everywhere a workspace lives: on Linux and macOS disks, in
an S3 key, in a git tree, in a URL, after a copy to Windows. So one strict policy stands here and is
asked by every entry; nothing else in the code decides whether a name is good. A `WorkspacePath` is
made only by its constructor, which refuses; holding one *is* the proof that it was checked.

Two paths that differ only in case (or in how case folds) are one name on half of the world's disks:
`folded` gives what they share, and whoever creates a file asks for twins by it.

What this door does not do is open anything: that is `beneath`, which goes through no link.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from workspaces.errors import Refused
from workspaces.invisible_characters import JOINERS, unseen

PATH_BYTES_MAX = 1024
"""S3 keys hold 1 024 bytes; the prefix and namespace in front of a path are kept short for it."""

PART_BYTES_MAX = 200
"""File systems hold 255; the rest is room for temporary and conflict names."""

PARTS_MAX = 20

_FORBIDDEN = frozenset('\\:*?"<>|%')
_DEVICE = re.compile(r"(con|prn|aux|nul|clock\$|conin\$|conout\$|(com|lpt)[0-9¹²³])", re.IGNORECASE)
_RESERVED = re.compile(r"(\.git.*|git~[0-9]+|\.harness.*)", re.IGNORECASE)


class WorkspacePath(str):
    """A checked path of a file in a workspace: `/`-separated, relative, NFC."""

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


@lru_cache(maxsize=65_536)  # creating asks for every neighbour of the new name
def folded(name: str) -> str:
    """Equal for all names that a case-insensitive file system would take for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def broken_rule(text: str) -> str | None:
    """The first rule that `text` breaks as a path, put to follow the value; None when it is good."""
    if not text:
        return "is empty"
    # Before anything that costs time or memory on a hostile megabyte.
    if len(text) > PATH_BYTES_MAX:
        return f"is longer than {PATH_BYTES_MAX} bytes"
    return _broken_rule(text)


@lru_cache(maxsize=65_536)  # the same names come again and again: a whole workspace's, and more
def _broken_rule(text: str) -> str | None:
    return _broken_by_characters(text) or _broken_by_length(text) or _broken_by_a_part(text)


def _broken_by_characters(text: str) -> str | None:
    if text.isascii() and text.isprintable() and _FORBIDDEN.isdisjoint(text):
        return None  # what nearly every name is, found six times faster
    for character in text:
        if character in _FORBIDDEN:
            return f"contains {character!r}, which some systems cannot keep in a name"
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
