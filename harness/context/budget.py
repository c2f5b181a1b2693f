"""One budget for all memory: who gets how much of it, and what of a text is shown within its share.

What does not fit is left out in whole entries, never in the middle of a thought. First come the pinned
ones, in half of the share; then the others, the newest first; then pinned ones for which half was too
little. Each row ends at the first entry that does not fit, so that what is shown is everything since some
moment. Of two entries of one revision the lower in the file is the newer. An entry that is very long is
shown by its beginning. Headings stay as long as anything below them is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.context.memory_entry import MemoryEntry, entries

MEMORY_CHARACTERS_MAX = 40_000
"""All memory together, unless the agent says otherwise: more than anyone rereads."""

MEMORY_SHARE_MAX = 0.4
"""Of the context's length: what is remembered must leave room for what is being said."""

CONTEXT_CHARACTERS_MAX = 100_000
"""The length from which a context is compacted, unless the agent says otherwise."""

ENTRY_CHARACTERS_MAX = 2_000

FLOOR_SHARE = 0.5
"""Of an even share: what each mount gets before the rest goes to those that want more."""


@dataclass(frozen=True, slots=True)
class Cut:
    text: str
    entries_left_out: int = 0
    lines_left_out: int = 0
    shortened: int = 0
    """Entries that are shown by their beginning."""

    @property
    def is_whole(self) -> bool:
        return not self.entries_left_out and not self.shortened


def budget(maximum: int = MEMORY_CHARACTERS_MAX, context: int = CONTEXT_CHARACTERS_MAX) -> int:
    """In code points."""
    return min(maximum, int(context * MEMORY_SHARE_MAX))


def shares(wanted: Sequence[int], total: int) -> list[int]:
    """What each gets: all that it wants if there is enough, else a floor and its proportion of the rest."""
    if sum(wanted) <= total:
        return list(wanted)
    floor = int(total * FLOOR_SHARE) // len(wanted)
    given = [min(want, floor) for want in wanted]
    rest = total - sum(given)
    beyond = [want - got for want, got in zip(wanted, given, strict=True)]
    more = [rest * want // sum(beyond) for want in beyond]
    return [got + extra for got, extra in zip(given, more, strict=True)]


def cut(text: str, characters_max: int, ages: Sequence[str] = ()) -> Cut:
    """The text within so many code points. `ages` tells for each line when it was written, in a form
    that sorts; without them all lines are of one age."""
    if len(text) <= characters_max:
        return Cut(text)
    page = _Page(text.split("\n"), characters_max, ages)
    page.fill()
    return page.cut()


@dataclass(frozen=True, slots=True)
class _Piece:
    """Something of a page that is shown or not: a heading, an entry, or an entry's beginning."""

    line: int
    text: str
    is_apart: bool
    """There is a blank line before it."""

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
        """As many as fit by their own text."""
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
        """An entry, or its beginning."""
        return text if len(text) <= self._entry_max else _head(text, self._entry_max)

    def _piece(self, line: int, text: str) -> _Piece:
        return _Piece(line, text, self._is_apart(line))

    def _is_apart(self, line: int) -> bool:
        return line > 0 and not self._lines[line - 1].strip()


def _head(text: str, characters_max: int) -> str:
    """The beginning of a text, with a mark that says how much more there is."""
    kept = max(0, characters_max - len(_mark(len(text))))
    return text[:kept] + _mark(len(text) - kept)


def _mark(count: int) -> str:
    return f" … ({count:,} more characters)"
