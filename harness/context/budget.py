"""Divides one budget among all memories, and cuts a text to its share.

Text that does not fit is left out in whole entries, never in the middle of a thought. Pinned entries come
first, in half of the share; then the others, newest first; then pinned ones that did not fit into the half.
Each of these series ends at the first entry that does not fit, so that everything since some moment is shown.
Of two entries of one revision the lower one in the file is the newer. Of a very long entry the beginning is
shown. A heading stays while anything below it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.context.memory_entry import MemoryEntry, entries

MEMORY_CHARACTERS_MAX = 40_000
"""Characters of all memory together, unless the agent sets a limit: more than anyone rereads."""

MEMORY_SHARE_MAX = 0.4
"""The share of the context's length: memory must leave room for the conversation."""

CONTEXT_CHARACTERS_MAX = 100_000
"""The length from which a context is compacted, unless the agent sets another one."""

ENTRY_CHARACTERS_MAX = 2_000

FLOOR_SHARE = 0.5
"""The part of an even share that each mount gets before the rest goes to mounts that need more."""


@dataclass(frozen=True, slots=True)
class Cut:
    text: str
    entries_left_out: int = 0
    lines_left_out: int = 0
    shortened: int = 0
    """The number of entries of which only the beginning is shown."""

    @property
    def is_whole(self) -> bool:
        return not self.entries_left_out and not self.shortened


def budget(maximum: int = MEMORY_CHARACTERS_MAX, context: int = CONTEXT_CHARACTERS_MAX) -> int:
    """Return the budget of all memory, in code points."""
    return min(maximum, int(context * MEMORY_SHARE_MAX))


def shares(needed: Sequence[int], total: int) -> list[int]:
    """Return the share of each: all that it needs if there is enough, else a floor and its proportion of the
    rest."""
    if sum(needed) <= total:
        return list(needed)
    floor = int(total * FLOOR_SHARE) // len(needed)
    granted = [min(need, floor) for need in needed]
    rest = total - sum(granted)
    beyond = [need - grant for need, grant in zip(needed, granted, strict=True)]
    more = [rest * need // sum(beyond) for need in beyond]
    return [grant + extra for grant, extra in zip(granted, more, strict=True)]


def cut(text: str, characters_max: int, ages: Sequence[str] = ()) -> Cut:
    """Return the text cut to at most `characters_max` code points.

    `ages` holds the time when each line was written, in a form that sorts. Without it all lines have the same
    age.
    """
    if len(text) <= characters_max:
        return Cut(text)
    page = _Page(text.split("\n"), characters_max, ages)
    page.fill()
    return page.cut()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a page that is shown or left out: a heading, an entry, or an entry's beginning."""

    line: int
    text: str
    is_apart: bool
    """True if a blank line precedes it."""

    @property
    def cost(self) -> int:
        return len(self.text) + 1 + self.is_apart


class _Page:
    def __init__(self, lines: Sequence[str], room: int, ages: Sequence[str]) -> None:
        self._lines = lines
        self._room = room + 1  # the last line needs no newline
        self._entry_max = min(ENTRY_CHARACTERS_MAX, room)
        self._ages = ages
        self._entries = entries(lines)
        self._shortened = 0
        self._shown: dict[int, _Piece] = {}

    def fill(self) -> None:
        ordered = sorted(self._entries, key=self._newness, reverse=True)
        pinned = [entry for entry in ordered if entry.is_pinned]
        first = list(self._within(pinned, (self._room - 1) // 2))
        self._show(first)
        self._show(entry for entry in ordered if not entry.is_pinned)
        self._show(pinned[len(first) :])

    def cut(self) -> Cut:
        shown = [self._shown[line] for line in sorted(self._shown)]
        rows: list[str] = []
        for piece in shown:
            if piece.is_apart and rows:
                rows.append("")
            rows.append(piece.text)
        left_out = [entry for entry in self._entries if entry.first not in self._shown]
        return Cut(
            "\n".join(rows),
            len(left_out),
            sum(entry.end - entry.first for entry in left_out),
            self._shortened,
        )

    def _show(self, wanted: Iterable[MemoryEntry]) -> None:
        for entry in wanted:
            text = self._text(entry)
            pieces = [self._piece(one.line, self._lines[one.line]) for one in entry.headings]
            pieces = [piece for piece in pieces if piece.line not in self._shown]
            pieces.append(self._piece(entry.first, self._fitting(text)))
            cost = sum(piece.cost for piece in pieces)
            if cost > self._room:
                return
            self._room -= cost
            self._shown |= {piece.line: piece for piece in pieces}
            self._shortened += len(text) > self._entry_max

    def _within(self, wanted: Iterable[MemoryEntry], room: int) -> Iterable[MemoryEntry]:
        """Yield the leading entries whose own texts fit into the room."""
        room += 1
        for entry in wanted:
            room -= len(self._fitting(self._text(entry))) + 1
            if room < 0:
                return
            yield entry

    def _newness(self, entry: MemoryEntry) -> tuple[str, int]:
        return max(self._ages[entry.first : entry.end], default=""), entry.first

    def _text(self, entry: MemoryEntry) -> str:
        return "\n".join(self._lines[entry.first : entry.end])

    def _fitting(self, text: str) -> str:
        """Return the entry, or only its beginning if it is too long."""
        return text if len(text) <= self._entry_max else _head(text, self._entry_max)

    def _piece(self, line: int, text: str) -> _Piece:
        return _Piece(line, text, self._is_apart(line))

    def _is_apart(self, line: int) -> bool:
        return line > 0 and not self._lines[line - 1].strip()


def _head(text: str, characters_max: int) -> str:
    """Return the beginning of a text, with a mark that states how many characters follow."""
    length = max(0, characters_max - len(_mark(len(text))))
    return text[:length] + _mark(len(text) - length)


def _mark(count: int) -> str:
    return f" … ({count:,} more characters)"
