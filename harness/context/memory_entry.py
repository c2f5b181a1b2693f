"""Entries: what a memory file consists of, and what is shown whole or not at all.

An entry is an item of a list with everything that is indented below it, or a paragraph. Headings and
blank lines are not entries; an entry knows the headings it stands under. Code between fences belongs
to the entry it follows, blank lines and all; a fence that is never closed is an ordinary line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

PINNED = "pinned"
"""What a heading says, in any case, above entries that stay first."""

HEADING_BYTES_MAX = 4096
"""Of a file, searched for its first heading."""

_HEADING_MARK = re.compile(r" {0,3}(#{1,6})(?![^ \t])")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_INDENTED = re.compile(r"(?: {2,}|\t)\S")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Heading:
    line: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """Lines `first` to before `end`."""

    first: int
    end: int
    headings: tuple[Heading, ...]
    """Outermost first."""

    @property
    def is_pinned(self) -> bool:
        return any(heading.title.casefold() == PINNED for heading in self.headings)


def entries(lines: Sequence[str]) -> list[MemoryEntry]:
    reader = _Reader(lines)
    reader.read()
    return reader.found


def heading_of(line: str) -> str | None:
    """The title, when the line is a heading."""
    mark = _HEADING_MARK.match(line)
    return None if mark is None else _title(line, mark)


def first_heading(data: bytes) -> str | None:
    """Of a file."""
    text = data[:HEADING_BYTES_MAX].decode(errors="replace")
    return next((title for line in text.splitlines() if (title := heading_of(line))), None)


class _Reader:
    def __init__(self, lines: Sequence[str]) -> None:
        self.found: list[MemoryEntry] = []
        self._lines = lines
        self._headings: list[Heading] = []
        self._first: int | None = None
        self._end = 0
        self._is_item = False
        self._fence_end = _fence_ends(lines)

    def read(self) -> None:
        number = 0
        while number < len(self._lines):
            number = self._take(number)
        self._close()

    def _take(self, number: int) -> int:
        """The line after the one that was looked at, or after the code that begins there."""
        line = self._lines[number]
        if not line.strip():
            if not self._is_item:
                self._close()
            return number + 1
        is_below = self._is_item and _INDENTED.match(line) is not None
        after_blank = self._first is not None and number > self._end
        if self._is_item and after_blank and not is_below:
            self._close()
        end = self._fence_end.get(number, number + 1)
        if not is_below and end == number + 1 and self._is_layout(number, line):
            return end
        if not is_below and _ITEM.match(line):
            self._close()
            self._is_item = True
        if self._first is None:
            self._first = number
        self._end = end
        return end

    def _is_layout(self, number: int, line: str) -> bool:
        mark = _HEADING_MARK.match(line)
        if mark is None and not _RULE.match(line):
            return False
        self._close()
        if mark is not None:
            level = len(mark[1])
            kept = [heading for heading in self._headings if heading.level < level]
            self._headings = [*kept, Heading(number, level, _title(line, mark))]
        return True

    def _close(self) -> None:
        if self._first is not None:
            self.found.append(MemoryEntry(self._first, self._end, tuple(self._headings)))
        self._first = None
        self._is_item = False


def _title(line: str, mark: re.Match[str]) -> str:
    """Return what follows the mark, without a closing run of `#` that a blank sets apart."""
    title = line[mark.end() :].strip(" \t")
    opened = title.rstrip("#")
    return (opened if opened.endswith((" ", "\t")) else title).strip()


def _fence_ends(lines: Sequence[str]) -> dict[int, int]:
    """For each line that opens a fence which is closed again: the line after the closing one."""
    marks = [(n, m[1]) for n, line in enumerate(lines) if (m := _FENCE.match(line))]
    # what carries a word after it only opens: it has no length as a closing mark
    lengths = [len(mark) if lines[n].strip() == mark else 0 for n, mark in marks]
    longest_after = _longest_after([mark[0] for _, mark in marks], lengths)
    ends: dict[int, int] = {}
    position = 0
    while position < len(marks):
        number, mark = marks[position]
        position += 1
        if longest_after[position - 1] < len(mark):
            continue
        while marks[position][1][0] != mark[0] or lengths[position] < len(mark):
            position += 1
        ends[number] = marks[position][0] + 1
        position += 1
    return ends


def _longest_after(kinds: Sequence[str], lengths: Sequence[int]) -> list[int]:
    """For each mark the longest later one that can close a fence of its kind, 0 for none: so that
    no search for a closing mark is in vain."""
    longest: dict[str, int] = {}
    result: list[int] = []
    for kind, length in zip(reversed(kinds), reversed(lengths), strict=True):
        result.append(longest.get(kind, 0))
        longest[kind] = max(longest.get(kind, 0), length)
    return result[::-1]
