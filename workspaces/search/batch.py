"""A batch: some texts of one transaction, and what becomes of their rows, units and postings.

A text that is indexed again is taken from the first unit on that is different; what stands before keeps its
numbers and its postings.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from workspaces.search import ranking
from workspaces.search.ranking import GAP_UNITS, SECTION_MARK
from workspaces.search.table import (
    BLOCK_UNITS,
    Edit,
    Edits,
    FileRow,
    above_of,
    apply_edits,
    drop_row,
    packed,
    put_row,
    replace_texts,
    texts_of,
    unpacked,
)
from workspaces.search.unit import Unit, units
from workspaces.search.words import STOP_WORDS, terms

UNITS_KEPT = 1 << 14
"""What the last texts were made of: the next change of one mostly changes a line of it. A kilobyte each."""


@dataclass(frozen=True, slots=True)
class _Words:
    counts: dict[str, int]
    length: int
    subject: frozenset[str]
    telling: frozenset[str]
    """What it has in common with its neighbours, if anything: no stop words, no subject."""


class IndexBatch:
    def __init__(self, database: sqlite3.Connection, rows: dict[str, FileRow]) -> None:
        self.rows = rows
        self.size = 0
        self._database = database
        self._edits: Edits = {}
        self._end = 0
        """Numbers from here on are nobody's; …"""
        self._holes: list[tuple[int, int]] = []
        """… nor are these: from, to."""
        for first, end in sorted((row.base, row.base + row.room) for row in rows.values()):
            if first > self._end:
                self._holes.append((self._end, first))
            self._end = end

    def drop(self, path: str) -> None:
        row = self.rows.pop(path, None)
        if row is not None:
            self._clear(row, 0)
            self._free(row)
            drop_row(self._database, path)

    def put(self, path: str, state: str, data: bytes) -> None:
        old = self.rows.get(path)
        new = list(units(data.decode(errors="replace")))
        if old is not None and len(new) + GAP_UNITS <= old.room:
            base, room = old.base, old.room
            same = self._same(old, new)
            self._clear(old, same)
        else:
            if old is not None:
                self._clear(old, 0)
                self._free(old)
            room = len(new) + GAP_UNITS + len(new) // 4 + 4
            base, same = self._allocate(room), 0
        self._write(path, state, data, new, base, room, same)

    def finish(self) -> None:
        apply_edits(self._database, self._edits)

    def _same(self, old: FileRow, new: list[Unit]) -> int:
        """How many units from the first on are as they were."""
        before = texts_of(self._database, old.base, old.base + len(old.traits))
        for at, (unit, known) in enumerate(zip(new, before, strict=False)):
            if (unit.line, unit.text) != known:
                return at
        return min(len(new), len(before))

    def _clear(self, row: FileRow, same: int) -> None:
        """Take out the postings of its units from `same` on, and of all its sections."""
        first, end = row.base + same, row.base + len(row.traits)
        self.size += end - first
        for at, (_, text) in enumerate(texts_of(self._database, first, end), first):
            for term in _words_of(text).counts:
                self._out(term, at, first, end)
        starts = unpacked(row.sections)
        for at, above in zip(starts, above_of(self._database, row.path), strict=True):
            for term in above.split():
                self._out(SECTION_MARK + term, row.base + at, row.base, row.base + row.room)
        replace_texts(self._database, first, end, ())

    def _out(self, term: str, unit: int, first: int, end: int) -> None:
        """Only of the unit's block; the file's units of another one name it themselves."""
        edit = self._edit(term, unit)
        if (first, end) not in edit.gone:
            edit.gone.append((first, end))

    def _write(
        self, path: str, state: str, data: bytes, new: list[Unit], base: int, room: int, same: int
    ) -> None:
        self.size += len(new) - same
        starts = array("I")
        above: list[str] = []
        traits = bytearray()
        neighbours: list[list[frozenset[str]]] = []
        headings: tuple[str, ...] | None = None
        for at, unit in enumerate(new):
            words = _words_of(unit.text)
            if unit.headings != headings:
                headings = unit.headings
                starts.append(at)
                above.append(" ".join(_terms_above(path, headings)))
                neighbours.append([])
            if not unit.is_heading:
                neighbours[-1].append(words.telling)
            traits.append(ranking.HEADING_TRAIT * unit.is_heading + ranking.ASKS_TRAIT * unit.asks)
            if at >= same:
                self._in(base + at, words)
        for at, terms_above in zip(starts, above, strict=True):
            for term in terms_above.split():
                self._edit(SECTION_MARK + term, base + at).new.append((base + at, 1))
        texts = ((unit.line, unit.text) for unit in new[same:])
        replace_texts(self._database, base + same, base + room, texts)
        row = FileRow(
            path,
            state,
            digest(data),
            base,
            room,
            bytes(traits),
            packed(starts),
            *ranking.add_neighbours(neighbours),
        )
        put_row(self._database, row, above)
        self.rows[path] = row

    def _in(self, unit: int, words: _Words) -> None:
        for term, count in words.counts.items():
            byte = ranking.weight(count, words.length, is_subject=term in words.subject)
            self._edit(term, unit).new.append((unit, byte))

    def _edit(self, term: str, unit: int) -> Edit:
        key = (term, unit // BLOCK_UNITS)
        edit = self._edits.get(key)
        if edit is None:
            edit = self._edits[key] = Edit([], [])
        return edit

    def _allocate(self, room: int) -> int:
        """The first range of numbers that nobody has."""
        for at, (first, end) in enumerate(self._holes):
            if end - first >= room:
                self._holes[at] = (first + room, end)
                return first
        self._end += room
        return self._end - room

    def _free(self, row: FileRow) -> None:
        self._holes.append((row.base, row.base + row.room))


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


@lru_cache(UNITS_KEPT)
def _words_of(text: str) -> _Words:
    found = terms(text)
    subject = frozenset(terms(Unit(1, text, ()).subject))
    telling = frozenset(found) - subject - STOP_WORDS
    return _Words(dict(Counter(found)), len(found), subject, telling)


def _terms_above(path: str, headings: tuple[str, ...]) -> list[str]:
    """What the section's headings and the file's name say: each term once."""
    name = path.rpartition(".")[0].replace("/", " ")
    return sorted({term for text in (name, *headings) for term in terms(text)})
