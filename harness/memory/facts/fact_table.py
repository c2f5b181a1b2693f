"""The table of parsed fact files, in a namespace's search database. See docs/data.md.

A row is what one file said at one blob, so a row never becomes wrong: the reader compares blobs. The table
can be deleted at any moment.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workspaces.history.git.objects import ObjectId
from workspaces.ids import Version
from workspaces.localfs.sqlite_file import remove, transaction, use_log

FORMAT = 1
"""Version of the table. A table with another version is emptied."""

WAIT_S = 30.0

_COLUMNS = (
    "(path TEXT PRIMARY KEY, blob TEXT NOT NULL, version TEXT NOT NULL, key TEXT, value TEXT NOT NULL, pinned"
    " INTEGER NOT NULL, importance INTEGER NOT NULL, attributes TEXT, is_truncated INTEGER NOT NULL, problem"
    " TEXT) WITHOUT ROWID"
)


class ParsedFile(NamedTuple):
    """What a file in `facts/` says."""

    path: str
    blob: ObjectId
    version: Version
    key: str | None
    """None: the file is no fact, and `problem` says why."""
    value: str
    pinned: bool
    importance: int
    attributes: str | None
    """The other keys of the front matter, as JSON."""
    is_truncated: bool
    problem: str | None

    @property
    def others(self) -> dict[str, Any]:
        return json.loads(self.attributes) if self.attributes else {}


class FactTable:
    """The table of one namespace. Each call opens the database: a process reads it once and then caches."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, ParsedFile]:
        """Return the rows by path; none if the database cannot be read."""
        try:
            database = self._open()
        except (sqlite3.Error, OSError):
            return {}
        try:
            rows = database.execute("SELECT * FROM fact_file").fetchall()
            return {row[0]: _parsed(row) for row in rows}
        except sqlite3.DatabaseError:
            return {}
        finally:
            database.close()

    def write(self, new: Iterable[ParsedFile], gone: Iterable[str]) -> None:
        """Store rows and remove others. A failure costs only the time to parse the files again."""
        try:
            database = self._open()
        except (sqlite3.Error, OSError):
            return
        try:
            with transaction(database):
                database.executemany(
                    "INSERT OR REPLACE INTO fact_file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", new
                )
                database.execute(
                    "DELETE FROM fact_file WHERE path IN (SELECT value FROM json_each(?))",
                    (json.dumps(list(gone)),),
                )
        except sqlite3.Error:
            return
        finally:
            database.close()

    def _open(self) -> sqlite3.Connection:
        self._file.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            return _connect(self._file)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # damaged: everything in the file can be made again
            remove(self._file)
            return _connect(self._file)


def attributes_json(attributes: Mapping[str, Any]) -> str | None:
    return json.dumps(attributes, ensure_ascii=False) if attributes else None


def _connect(file: Path) -> sqlite3.Connection:
    database = sqlite3.connect(file, isolation_level=None, timeout=WAIT_S)
    try:
        use_log(database, wait_s=WAIT_S)
        database.execute("PRAGMA synchronous=NORMAL")
        if _format(database) != FORMAT:
            with transaction(database):
                database.execute("DROP TABLE IF EXISTS fact_file")
                database.execute("DROP TABLE IF EXISTS fact_state")
                database.execute(f"CREATE TABLE fact_file {_COLUMNS}")
                database.execute("CREATE TABLE fact_state (format INTEGER NOT NULL)")
                database.execute("INSERT INTO fact_state VALUES (?)", (FORMAT,))
    except BaseException:
        database.close()
        raise
    return database


def _format(database: sqlite3.Connection) -> int | None:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'fact_state'").fetchone():
        return None
    row = database.execute("SELECT format FROM fact_state").fetchone()
    return int(row[0]) if row else None


def _parsed(row: tuple[Any, ...]) -> ParsedFile:
    path, blob, version, key, value, pinned, importance, attributes, truncated, problem = row
    return ParsedFile(
        path,
        ObjectId(blob),
        Version(version),
        key,
        value,
        pinned=bool(pinned),
        importance=importance,
        attributes=attributes,
        is_truncated=bool(truncated),
        problem=problem,
    )
