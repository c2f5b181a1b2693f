"""The tables of a recall index in SQLite, and the encoding of number lists in them. See docs/data.md."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from workspaces.localfs.sqlite_file import open_rebuildable, transaction

FORMAT = 3
"""Version of the tables and of the splitting of texts into words. Another version rebuilds the tables."""

BLOCK_UNITS = 4096
"""Neighbouring units in one row of a term's postings. A changed file touches one or two rows."""

_TABLES = {
    "recall_state": "(format INTEGER NOT NULL, generation INTEGER NOT NULL)",
    "recall_file": "(path TEXT PRIMARY KEY, state TEXT NOT NULL, digest BLOB NOT NULL,"
    " base INTEGER NOT NULL, room INTEGER NOT NULL, traits BLOB NOT NULL, sections BLOB NOT NULL,"
    " shared REAL NOT NULL, expected REAL NOT NULL, above TEXT NOT NULL) WITHOUT ROWID",
    "recall_unit": "(id INTEGER PRIMARY KEY, line INTEGER NOT NULL, text TEXT NOT NULL)",
    "recall_posting": "(term TEXT, block INTEGER, units BLOB NOT NULL, weights BLOB NOT NULL,"
    " PRIMARY KEY (term, block)) WITHOUT ROWID",
}


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file. Its units are numbered from `base`, and `room` numbers are reserved for it."""

    path: str
    state: str
    digest: bytes
    base: int
    room: int
    traits: bytes
    """The traits of each unit, one byte each."""
    sections: bytes
    """The first unit of each section, counted from `base`, encoded by `pack_numbers`."""
    shared: float
    expected: float


@dataclass(frozen=True, slots=True)
class Posting:
    """The units that hold a term, ascending, and a weight byte for each unit."""

    units: array[int]
    weights: bytes


NOWHERE = Posting(array("I"), b"")


@dataclass(slots=True)
class Edit:
    """The changes of one row of postings."""

    removed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Ranges of units whose postings are removed, before others are added."""
    units: array[int] = field(default_factory=lambda: array("I"))
    """Units to add."""
    weights: bytearray = field(default_factory=bytearray)
    """The weight of each unit to add."""

    def add(self, unit: int, weight: int) -> None:
        self.units.append(unit)
        self.weights.append(weight)


Edits = dict[int, dict[str, Edit]]
"""The changes of postings, by block and term."""


def connect(file: Path) -> sqlite3.Connection:
    def prepare(database: sqlite3.Connection) -> None:
        if _format(database) != FORMAT:
            _reset(database)

    return open_rebuildable(file, prepare)


def generation_of(database: sqlite3.Connection) -> int:
    """Return the generation of the index, which grows with every change."""
    return int(database.execute("SELECT generation FROM recall_state").fetchone()[0])


def next_generation(database: sqlite3.Connection) -> int:
    database.execute("UPDATE recall_state SET generation = generation + 1")
    return generation_of(database)


def rows_of(database: sqlite3.Connection) -> dict[str, FileRow]:
    """Return the rows of all files, by name."""
    rows = database.execute(
        "SELECT path, state, digest, base, room, traits, sections, shared, expected"
        " FROM recall_file ORDER BY path"
    )
    return {row[0]: FileRow(*row) for row in rows}


def above_of(database: sqlite3.Connection, path: str) -> list[str]:
    """Return, for each section of a file, the terms of its headings and the file's name, space-separated."""
    query = "SELECT above FROM recall_file WHERE path = ?"
    return list(json.loads(database.execute(query, (path,)).fetchone()[0]))


def put_row(database: sqlite3.Connection, row: FileRow, above: list[str]) -> None:
    database.execute(
        "INSERT OR REPLACE INTO recall_file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row.path, row.state, row.digest, row.base, row.room, row.traits, row.sections),
            *(row.shared, row.expected, json.dumps(above)),
        ),
    )


def drop_row(database: sqlite3.Connection, path: str) -> None:
    database.execute("DELETE FROM recall_file WHERE path = ?", (path,))


def texts_of(database: sqlite3.Connection, first: int, end: int) -> list[tuple[int, str]]:
    """Return line number and text of the units from `first` to before `end`, ascending."""
    return database.execute(
        "SELECT line, text FROM recall_unit WHERE id >= ? AND id < ? ORDER BY id", (first, end)
    ).fetchall()


def replace_texts(
    database: sqlite3.Connection, first: int, end: int, texts: Iterable[tuple[int, str]]
) -> None:
    database.execute("DELETE FROM recall_unit WHERE id >= ? AND id < ?", (first, end))
    rows = ((first + n, line, text) for n, (line, text) in enumerate(texts))
    database.executemany("INSERT INTO recall_unit VALUES (?, ?, ?)", rows)


def postings_of(database: sqlite3.Connection, terms: Iterable[str]) -> dict[str, Posting]:
    blocks: dict[str, tuple[array[int], list[bytes]]] = {}
    query = (
        "SELECT term, units, weights FROM recall_posting"
        " WHERE term IN (SELECT value FROM json_each(?)) ORDER BY term, block"
    )
    for term, units, weights in database.execute(query, (json.dumps(list(terms)),)):
        all_units, parts = blocks.setdefault(term, (array("I"), []))
        all_units.extend(unpack_numbers(units))
        parts.append(weights)
    return {term: Posting(units, b"".join(parts)) for term, (units, parts) in blocks.items()}


def apply_edits(database: sqlite3.Connection, edits: Edits) -> None:
    """Write the edits. Neighbouring rows share pages, so the terms of a block are written in their order."""
    read = (
        "SELECT term, units, weights FROM recall_posting"
        " WHERE block = ? AND term IN (SELECT value FROM json_each(?))"
    )
    for block, changes in edits.items():
        terms = sorted(changes)
        stored = {
            term: Posting(unpack_numbers(units), weights)
            for term, units, weights in database.execute(read, (block, json.dumps(terms)))
        }
        new = [(term, _edited(stored.get(term, NOWHERE), changes[term])) for term in terms]
        database.executemany(
            "INSERT OR REPLACE INTO recall_posting VALUES (?, ?, ?, ?)",
            ((term, block, pack_numbers(one.units), one.weights) for term, one in new if one.units),
        )
        database.executemany(
            "DELETE FROM recall_posting WHERE term = ? AND block = ?",
            ((term, block) for term, one in new if not one.units and term in stored),
        )


def _edited(old: Posting, edit: Edit) -> Posting:
    """Return a row of postings after its changes."""
    if not old.units and _ascends(edit.units):  # a new row: most rows of a new index
        return Posting(edit.units, bytes(edit.weights))
    units, weights = array("I", old.units), bytearray(old.weights)
    for first, end in edit.removed:
        left, right = bisect_left(units, first), bisect_left(units, end)
        del units[left:right], weights[left:right]
    units.extend(edit.units)
    weights.extend(edit.weights)
    if not _ascends(units):
        order = sorted(range(len(units)), key=units.__getitem__)
        units = array("I", (units[at] for at in order))
        weights = bytearray(weights[at] for at in order)
    return Posting(units, bytes(weights))


def _ascends(units: array[int]) -> bool:
    return len(units) < 2 or units.tolist() == sorted(units)


def _reset(database: sqlite3.Connection) -> None:
    """Replace the tables by empty ones, unless another process has just made them."""
    with transaction(database):
        if _format(database) == FORMAT:
            return
        for table, columns in _TABLES.items():
            database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE {table} {columns}")
        database.execute("INSERT INTO recall_state VALUES (?, 0)", (FORMAT,))


def empty(database: sqlite3.Connection) -> None:
    """Delete all rows of the index, also vectors. The caller makes the next generation."""
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'recall\\_%' ESCAPE '\\'"
    )
    for (table,) in database.execute(tables).fetchall():
        if table != "recall_state":
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - a table of this file


def _format(database: sqlite3.Connection) -> int | None:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'recall_state'").fetchone():
        return None
    row = database.execute("SELECT format FROM recall_state").fetchone()
    return int(row[0]) if row else None


def pack_numbers(units: array[int]) -> bytes:
    """Encode numbers as 32 bits each, little-endian."""
    if sys.byteorder == "big":
        units = array("I", units)
        units.byteswap()
    return units.tobytes()


def unpack_numbers(data: bytes) -> array[int]:
    units = array("I")
    units.frombytes(data)
    if sys.byteorder == "big":
        units.byteswap()
    return units
