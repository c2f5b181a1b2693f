"""Splits a memory file into entries. An entry is shown whole or not at all.

An entry is an item of a list with everything that is indented below it, or a paragraph. Headings and blank
lines are not entries; an entry knows the headings above it. Fenced code belongs to the entry that it follows,
including its blank lines. A fence that is never closed is an ordinary line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

PINNED = "pinned"
"""The title, in any case, of a heading whose entries stay first."""

HEADING_BYTES_MAX = 4096
"""Bytes of a file that are searched for its first heading."""

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
    """A range of lines: from `first`, up to but not including `end`."""

    first: int
    end: int
    headings: tuple[Heading, ...]
    """The headings above the entry, outermost first."""

    @property
    def is_pinned(self) -> bool:
        return any(heading.title.casefold() == PINNED for heading in self.headings)


def entries(lines: Sequence[str]) -> list[MemoryEntry]:
    reader = _EntryReader(lines)
    reader.read()
    return reader.entries


def heading_of(line: str) -> str | None:
    """Return the title if the line is a heading, else None."""
    mark = _HEADING_MARK.match(line)
    return None if mark is None else _title(line, mark)


def first_heading(data: bytes) -> str | None:
    """Return the title of the first heading in a file, or None."""
    text = data[:HEADING_BYTES_MAX].decode(errors="replace")
    return next((title for line in text.splitlines() if (title := heading_of(line))), None)


class _EntryReader:
    def __init__(self, lines: Sequence[str]) -> None:
        self.entries: list[MemoryEntry] = []
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
        """Read one line or one block of fenced code. Return the number of the line after it."""
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
            outer = [heading for heading in self._headings if heading.level < level]
            self._headings = [*outer, Heading(number, level, _title(line, mark))]
        return True

    def _close(self) -> None:
        if self._first is not None:
            self.entries.append(MemoryEntry(self._first, self._end, tuple(self._headings)))
        self._first = None
        self._is_item = False


def _title(line: str, mark: re.Match[str]) -> str:
    """Return the text after the mark, without a closing run of `#` that follows a blank."""
    title = line[mark.end() :].strip(" \t")
    unclosed = title.rstrip("#")
    return (unclosed if unclosed.endswith((" ", "\t")) else title).strip()


def _fence_ends(lines: Sequence[str]) -> dict[int, int]:
    """Map each line that opens a closed fence to the line after its closing mark."""
    marks = [(n, m[1]) for n, line in enumerate(lines) if (m := _FENCE.match(line))]
    # a mark with a word after it can only open a fence: as a closing mark its length is 0
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
    """Return, for each mark, the longest later mark that can close a fence of its kind, or 0 if there is
    none. With it no search for a closing mark runs in vain."""
    longest: dict[str, int] = {}
    result: list[int] = []
    for kind, length in zip(reversed(kinds), reversed(lengths), strict=True):
        result.append(longest.get(kind, 0))
        longest[kind] = max(longest.get(kind, 0), length)
    return result[::-1]
