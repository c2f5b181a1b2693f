"""The tables of file origins, in a namespace's search database. See docs/data.md."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from workspaces.history.git.objects import ObjectId
from workspaces.history.source import Source
from workspaces.localfs.sqlite_file import open_rebuildable, transaction
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.timestamp import Stamp

FORMAT = 1
"""Version of the tables. A file with another version is emptied and rebuilt."""

_TABLES = {
    "file_origin_state": "(format INTEGER NOT NULL, tip TEXT, life TEXT NOT NULL, advance INTEGER NOT NULL)",
    "file_event": "(path TEXT NOT NULL, revision TEXT NOT NULL, place TEXT NOT NULL, is_change INTEGER NOT"
    " NULL, blob TEXT, body TEXT, is_new_body INTEGER NOT NULL, at TEXT NOT NULL, created_at TEXT NOT NULL,"
    " source TEXT NOT NULL, author TEXT NOT NULL, PRIMARY KEY (path, revision)) WITHOUT ROWID",
    "file_origin": "(path TEXT PRIMARY KEY, blob TEXT, revision TEXT, created_at TEXT, updated_at TEXT,"
    " source TEXT, author TEXT, advance INTEGER NOT NULL) WITHOUT ROWID",
}


class FileEvent(NamedTuple):
    """A revision that changed a file, or adopted it."""

    path: str
    revision: RevisionId
    place: str
    """Sorts events: greater than the place of every ancestor's."""
    is_change: bool
    """False if the revision only adopted the file."""
    blob: ObjectId | None
    """The file in this revision. None: deleted."""
    body: str | None
    """The git id of the body's bytes."""
    is_new_body: bool
    """True if the revision gave the file this body, or adopted it: its writer is to be believed for it."""
    at: Stamp
    created_at: Stamp
    source: Source
    author: str


class FileOrigin(NamedTuple):
    """Where the present content of a file comes from."""

    path: WorkspacePath
    blob: ObjectId
    revision: RevisionId
    """The newest revision that changed the file."""
    created_at: Stamp
    """The stamp of the first revision that had the file. A file that was deleted and made again is new."""
    updated_at: Stamp
    """The stamp of the newest revision that changed the file, front matter or body."""
    source: Source
    """Who is to be believed for the body."""
    author: str
    """The id of who wrote the body, or adopted it."""


class OriginMark(NamedTuple):
    """How far a reader has read: up to an advance of the tables, in one life of them."""

    life: str
    advance: int


@dataclass(frozen=True, slots=True)
class OriginChanges:
    """The files whose origins differ from those at a reader's mark."""

    tip: RevisionId | None
    mark: OriginMark
    files: Mapping[WorkspacePath, FileOrigin | None]
    """None: the newest revision has no such file."""
    is_whole: bool
    """True if these are all files, because the reader's mark is of no use."""


def connect(file: Path) -> sqlite3.Connection:
    def prepare(database: sqlite3.Connection) -> None:
        if _format(database) != FORMAT:
            with transaction(database):
                if _format(database) != FORMAT:
                    empty(database)

    return open_rebuildable(file, prepare)


def empty(database: sqlite3.Connection) -> None:
    """Replace the tables by empty ones, within the caller's transaction."""
    for table, columns in _TABLES.items():
        database.execute(f"DROP TABLE IF EXISTS {table}")
        database.execute(f"CREATE TABLE {table} {columns}")
    life = secrets.token_hex(8)
    database.execute("INSERT INTO file_origin_state VALUES (?, NULL, ?, 0)", (FORMAT, life))


def tip_of(database: sqlite3.Connection) -> RevisionId | None:
    """Return the revision that the tables have reached."""
    row = database.execute("SELECT tip FROM file_origin_state").fetchone()
    return None if row is None or row[0] is None else RevisionId(row[0])


def mark_of(database: sqlite3.Connection) -> OriginMark:
    life, advance = database.execute("SELECT life, advance FROM file_origin_state").fetchone()
    return OriginMark(life, advance)


def move_tip(database: sqlite3.Connection, tip: RevisionId) -> None:
    database.execute("UPDATE file_origin_state SET tip = ?, advance = advance + 1", (tip,))


def put_events(database: sqlite3.Connection, events: Iterable[FileEvent]) -> None:
    database.executemany(
        "INSERT OR REPLACE INTO file_event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", events
    )


def put_origins(
    database: sqlite3.Connection, origins: Iterable[FileOrigin], gone: Iterable[str]
) -> None:
    """Store the origins that the next advance brings. `gone` are paths without a file now."""
    advance = mark_of(database).advance + 1
    rows = chain(
        ((*origin, advance) for origin in origins), ((path, *[None] * 6, advance) for path in gone)
    )
    database.executemany("INSERT OR REPLACE INTO file_origin VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def events_of(database: sqlite3.Connection, path: str) -> list[FileEvent]:
    rows = database.execute("SELECT * FROM file_event WHERE path = ?", (path,))
    return [FileEvent(*row) for row in rows]


def origin_of(database: sqlite3.Connection, path: str) -> FileOrigin | None:
    row = database.execute("SELECT * FROM file_origin WHERE path = ?", (path,)).fetchone()
    return None if row is None else _origin(row)


def origins_below(
    database: sqlite3.Connection, directory: str, *, after: int = -1
) -> dict[WorkspacePath, FileOrigin | None]:
    """Return the origins below a directory that were stored after an advance, ascending by path. `""` is the
    root."""
    start = f"{directory}/" if directory else ""
    rows = database.execute(
        "SELECT * FROM file_origin WHERE path >= ? AND path < ? AND advance > ? ORDER BY path",
        (start, f"{start}\U0010ffff", after),
    )
    return {WorkspacePath(row[0]): _origin(row) for row in rows}


def _origin(row: tuple[Any, ...]) -> FileOrigin | None:
    path, blob, revision, created_at, updated_at, source, author, _ = row
    if blob is None:
        return None
    return FileOrigin(
        WorkspacePath(path), blob, revision, created_at, updated_at, source=source, author=author
    )


def _format(database: sqlite3.Connection) -> int | None:
    exists = "SELECT 1 FROM sqlite_master WHERE name = 'file_origin_state'"
    if not database.execute(exists).fetchone():
        return None
    row = database.execute("SELECT format FROM file_origin_state").fetchone()
    return int(row[0]) if row else None
