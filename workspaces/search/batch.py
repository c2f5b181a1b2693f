"""A batch of texts that one transaction indexes, with the changes of their rows, units and postings.

A text that is indexed again is processed from the first changed unit on. The units before it keep their
numbers and their postings.
"""

from __future__ import annotations

import hashlib
import sqlite3
from array import array
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
    pack_numbers,
    put_row,
    replace_texts,
    texts_of,
    unpack_numbers,
)
from workspaces.search.unit import Unit, text_units
from workspaces.search.words import STOP_WORDS, terms

UNITS_KEPT = 1 << 14
"""Units in the cache of words, a kilobyte each. A change of a text usually changes one line of it."""

SUBJECTS_KEPT = 1 << 10
"""Subjects in a cache of their own: in a talk each line begins with one of a few names."""


@dataclass(frozen=True, slots=True)
class _Words:
    counts: dict[str, int]
    length: int
    subject: frozenset[str]
    topical: frozenset[str]
    """The terms that neighbouring units may share: no stop words, no subject."""


class IndexBatch:
    """The changes that one transaction makes to an index."""

    def __init__(self, database: sqlite3.Connection, rows: dict[str, FileRow]) -> None:
        self.rows = rows
        self.size = 0
        self._database = database
        self._edits: Edits = {}
        self._end = 0
        """Numbers from here on belong to no file."""
        self._free_ranges: list[tuple[int, int]] = []
        """Further ranges that belong to no file: start, end."""
        for first, end in sorted((row.base, row.base + row.room) for row in rows.values()):
            if first > self._end:
                self._free_ranges.append((self._end, first))
            self._end = end

    def drop(self, path: str) -> None:
        row = self.rows.pop(path, None)
        if row is not None:
            self._clear(row, 0)
            self._free(row)
            drop_row(self._database, path)

    def put(self, path: str, state: str, data: bytes) -> None:
        old = self.rows.get(path)
        new = list(text_units(path, data.decode(errors="replace")))
        if old is not None and len(new) + GAP_UNITS <= old.room:  # it fits into its range
            base, room = old.base, old.room
            same = self._count_unchanged(old, new)
            self._clear(old, same)
        else:  # a new file, or one that needs a larger range
            if old is not None:
                self._clear(old, 0)
                self._free(old)
            room = len(new) + GAP_UNITS + len(new) // 4 + 4
            base, same = self._allocate(room), 0
        self._write(path, state, data, new, base=base, room=room, same=same)

    def finish(self) -> None:
        apply_edits(self._database, self._edits)

    def _count_unchanged(self, old: FileRow, new: list[Unit]) -> int:
        """Count the units that are unchanged, from the first one on."""
        before = texts_of(self._database, old.base, old.base + len(old.traits))
        for at, (unit, known) in enumerate(zip(new, before, strict=False)):
            if (unit.line, unit.text) != known:
                return at
        return min(len(new), len(before))

    def _clear(self, row: FileRow, same: int) -> None:
        """Remove the postings of a file's units from `same` on, and those of all its sections."""
        first, end = row.base + same, row.base + len(row.traits)
        self.size += end - first
        for at, (_, text) in enumerate(texts_of(self._database, first, end), first):
            for term in _words_of(text).counts:
                self._remove_posting(term, at, first, end)
        starts = unpack_numbers(row.sections)
        for at, above in zip(starts, above_of(self._database, row.path), strict=True):
            for term in above.split():
                range_end = row.base + row.room
                self._remove_posting(SECTION_MARK + term, row.base + at, row.base, range_end)
        replace_texts(self._database, first, end, ())

    def _remove_posting(self, term: str, unit: int, first: int, end: int) -> None:
        """Remove a range of postings from the unit's block only. Units of the file in another block cause a
        call of their own."""
        edit = self._edit(term, unit)
        if (first, end) not in edit.removed:
            edit.removed.append((first, end))

    def _write(
        self,
        path: str,
        state: str,
        data: bytes,
        new: list[Unit],
        *,
        base: int,
        room: int,
        same: int,
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
                neighbours[-1].append(words.topical)
            traits.append(
                ranking.traits_of(words.length, is_heading=unit.is_heading, asks=unit.asks)
            )
            if at >= same:
                self._add_postings(base + at, words)
        for at, terms_above in zip(starts, above, strict=True):
            for term in terms_above.split():
                self._edit(SECTION_MARK + term, base + at).add(base + at, 1)
        texts = ((unit.line, unit.text) for unit in new[same:])
        replace_texts(self._database, base + same, base + room, texts)
        shared, expected = ranking.count_shared_terms(neighbours)
        row = FileRow(
            path=path,
            state=state,
            digest=digest(data),
            base=base,
            room=room,
            traits=bytes(traits),
            sections=pack_numbers(starts),
            shared=shared,
            expected=expected,
        )
        put_row(self._database, row, above)
        self.rows[path] = row

    def _add_postings(self, unit: int, words: _Words) -> None:
        """Add the postings of a unit. This is most of the work of indexing, hence the plain loop."""
        changes = self._edits.setdefault(unit // BLOCK_UNITS, {})
        share = ranking.share_of(words.length)
        weights: dict[int, int] = {}
        for term, count in words.counts.items():
            edit = changes.get(term)
            if edit is None:
                edit = changes[term] = Edit()
            byte = weights.get(count)
            if byte is None:
                byte = weights[count] = ranking.weight(count, share)
            edit.units.append(unit)
            edit.weights.append(byte)
        for term in words.subject & words.counts.keys():
            changes[term].weights[-1] |= ranking.SUBJECT_BIT

    def _edit(self, term: str, unit: int) -> Edit:
        changes = self._edits.setdefault(unit // BLOCK_UNITS, {})
        edit = changes.get(term)
        if edit is None:
            edit = changes[term] = Edit()
        return edit

    def _allocate(self, room: int) -> int:
        """Return the start of the first free range with enough numbers."""
        for at, (first, end) in enumerate(self._free_ranges):
            if end - first >= room:
                self._free_ranges[at] = (first + room, end)
                return first
        self._end += room
        return self._end - room

    def _free(self, row: FileRow) -> None:
        self._free_ranges.append((row.base, row.base + row.room))


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


@lru_cache(UNITS_KEPT)
def _words_of(text: str) -> _Words:
    counts = terms(text)
    subject = _subject_terms(Unit(1, text, ()).subject)
    topical = frozenset(counts) - subject - STOP_WORDS
    return _Words(counts, sum(counts.values()), subject, topical)


@lru_cache(SUBJECTS_KEPT)
def _subject_terms(subject: str) -> frozenset[str]:
    return frozenset(terms(subject))


def _terms_above(path: str, headings: tuple[str, ...]) -> list[str]:
    """Return the terms of a section's headings and of the file's name, each once."""
    name = path.rpartition(".")[0].replace("/", " ")
    return sorted({term for text in (name, *headings) for term in terms(text)})
