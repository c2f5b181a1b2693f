"""The tables of line origins, in a namespace's search database. See docs/data.md."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from workspaces.localfs.sqlite_file import open_rebuildable, transaction
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

FORMAT = 2
"""Version of the tables. A file with another version is emptied and rebuilt."""

_TABLES = {
    "origin_state": "(format INTEGER NOT NULL, tip TEXT)",
    "origin_revision": "(number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, at TEXT NOT NULL)",
    "origin_file": "(path TEXT PRIMARY KEY, blob TEXT, first INTEGER NOT NULL,"
    " newest INTEGER NOT NULL, runs BLOB NOT NULL) WITHOUT ROWID",
}

Lines = list[int]
"""The origin of each line, as a number in `origin_revision`."""


@dataclass(frozen=True, slots=True)
class OriginRow:
    blob: str | None
    first: int
    runs: bytes


def connect(file: Path) -> sqlite3.Connection:
    def prepare(database: sqlite3.Connection) -> None:
        if _format(database) != FORMAT:
            reset(database, unless=FORMAT)

    return open_rebuildable(file, prepare)


def reset(database: sqlite3.Connection, *, unless: int | None = None) -> None:
    """Replace the tables by empty ones. `unless`: keep them if another process has just made them in this
    format."""
    with transaction(database):
        if unless is not None and _format(database) == unless:
            return
        for table, columns in _TABLES.items():
            database.execute(f"DROP TABLE IF EXISTS {table}")
            database.execute(f"CREATE TABLE {table} {columns}")
        database.execute("INSERT INTO origin_state VALUES (?, NULL)", (FORMAT,))


def tip_of(database: sqlite3.Connection) -> RevisionId | None:
    """Return the revision that the tables have reached."""
    row = database.execute("SELECT tip FROM origin_state").fetchone()
    return None if row is None or row[0] is None else RevisionId(row[0])


def move_tip(database: sqlite3.Connection, tip: RevisionId) -> None:
    database.execute("UPDATE origin_state SET tip = ?", (tip,))


def number_of(database: sqlite3.Connection, revision: RevisionId, at: Stamp) -> int:
    database.execute("INSERT OR IGNORE INTO origin_revision (id, at) VALUES (?, ?)", (revision, at))
    row = database.execute(
        "SELECT number FROM origin_revision WHERE id = ?", (revision,)
    ).fetchone()
    return int(row[0])


def row_of(database: sqlite3.Connection, path: str) -> OriginRow | None:
    row = database.execute(
        "SELECT blob, first, runs FROM origin_file WHERE path = ?", (path,)
    ).fetchone()
    return None if row is None else OriginRow(*row)


def ids_of(database: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, RevisionId]:
    rows = database.execute(
        "SELECT number, id FROM origin_revision WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    )
    return {int(number): RevisionId(of) for number, of in rows}


def stamps_of(database: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Stamp]:
    rows = database.execute(
        "SELECT number, at FROM origin_revision WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    )
    return {int(number): Stamp(at) for number, at in rows}


def believable_stamps(
    database: sqlite3.Connection, revisions: Iterable[RevisionId]
) -> dict[RevisionId, Stamp]:
    rows = database.execute(
        "SELECT id, at FROM origin_revision WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(revisions)),),
    )
    return {RevisionId(of): Stamp(at) for of, at in rows}


def encode_runs(lines: Lines) -> bytes:
    """Return the lines as pairs of (revision number, number of lines), 32 bits each, little-endian."""
    runs = array("I")
    for number, group in groupby(lines):
        runs.extend((number, len(list(group))))
    return _little_endian(runs).tobytes()


def decode_runs(data: bytes) -> Lines:
    runs = array("I")
    runs.frombytes(data)
    _little_endian(runs)
    return [number for n in range(0, len(runs), 2) for number in [runs[n]] * runs[n + 1]]


def _little_endian(runs: array[int]) -> array[int]:
    if sys.byteorder == "big":
        runs.byteswap()
    return runs


def _format(database: sqlite3.Connection) -> int | None:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'origin_state'").fetchone():
        return None
    row = database.execute("SELECT format FROM origin_state").fetchone()
    return int(row[0]) if row else None
