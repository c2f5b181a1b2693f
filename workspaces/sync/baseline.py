"""The baseline: the last tree on which this machine and the store agreed, and the stat cache of the
scan.

A row states that at some moment both sides held this version of this path, and that the store gave it
this token. The row is written *after* the effect that made it true. So the baseline may lag behind,
which costs one comparison and loses nothing. It never runs ahead. Two processes may write one row at the
same instant. Each names the row it had read before, and the later write is dropped: a row that is put
back would make a change look like no change.

One fact is written before its effect: a file that was deleted here is about to be deleted in the store.
If the object is gone there later, although the answer was lost, then no other machine deleted it. A file
that is here again by then is new.

A baseline belongs to one directory and one place in one store. With another place it starts empty, which
deletes nothing on either side. With another directory, sync asks first.

The file is SQLite in WAL mode with synchronous FULL: a row that was written survives a power cut.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from workspaces.errors import Refused, Unavailable
from workspaces.history.git.objects import ObjectId
from workspaces.ids import Version
from workspaces.localfs.sqlite_file import (
    DAMAGED,
    erase_deleted,
    explained,
    transaction,
    use_log,
)
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem, ProblemKind
from workspaces.storage.blobs import Token
from workspaces.tree.scan import FileState, Known, Signature

FORMAT = 1
"""`PRAGMA user_version` of the file. A newer format is refused."""

WAIT_S = 10.0

ROWS_LOOKED_UP_MAX = 50
"""Beyond this number of paths, reading all rows is faster than looking each up."""

_DAMAGED = (
    DAMAGED,
    "delete the file: the next sync compares both sides again, and a file deleted on only one side "
    "comes back",
)

BEING_DELETED = Version("")
"""A version that no file has."""

_TABLES = (
    "create table if not exists agreed"
    " (path text primary key, version text, object text, token text) without rowid",
    "create table if not exists seen"
    " (path text primary key, size integer, mtime integer, ctime integer, inode integer,"
    " version text, object text) without rowid",
    "create table if not exists problem (path text, kind text, detail text)",
    "create table if not exists fact (name text primary key, value text) without rowid",
)


@dataclass(frozen=True, slots=True)
class SyncedFile:
    """A version of one file that both sides held."""

    version: Version
    object_id: ObjectId
    """Finds the bytes in the history, where they serve as the base of a merge."""
    token: Token

    @property
    def being_deleted(self) -> SyncedFile:
        """Return a copy that marks the file as being deleted in the store.

        The file was deleted here. No file has the marked version, whatever its content.
        """
        return replace(self, version=BEING_DELETED)

    @property
    def is_being_deleted(self) -> bool:
        return self.version == BEING_DELETED


@dataclass(frozen=True, slots=True)
class BaselineChange:
    """A row before and after a change. None means that there is no row."""

    path: WorkspacePath
    before: SyncedFile | None
    after: SyncedFile | None


class Baseline:
    """The baseline of one workspace. Threads and processes may share the file."""

    def __init__(self, file: Path | None) -> None:
        """Use the database `file`. With None, keep the rows in memory as long as this object lives."""
        self._file = file
        self._database: sqlite3.Connection | None = None
        self._pid = 0
        self._is_synchronous: bool | None = None
        """True if SQLite's last setting was to wait for the disk."""
        self._lock = threading.Lock()
        self._rows: Mapping[WorkspacePath, SyncedFile] = {}
        self._rows_of: int | None = None
        """The data version of the file to which the cached rows belong. SQLite changes it when others
        write. None means that nothing is cached."""
        self._since: dict[WorkspacePath, SyncedFile | None] = {}
        """Rows written by this object since the cached rows were read."""

    def tree(self) -> Mapping[WorkspacePath, SyncedFile]:
        """Return all rows. They are read again only if others have written. A returned mapping never
        changes."""
        with self._connection() as database:
            state = int(database.execute("pragma data_version").fetchone()[0])
            if self._rows_of != state:  # nothing cached, or others have written
                rows = database.execute("select path, version, object, token from agreed")
                self._rows = {WorkspacePath(path): SyncedFile(*rest) for path, *rest in rows}
                self._rows_of = state
            elif self._since:  # only this object has written: build a new mapping
                merged = {**self._rows, **self._since}
                self._rows = {path: row for path, row in merged.items() if row is not None}
            self._since.clear()
            return self._rows

    def count(self) -> int:
        """Return the number of agreed files."""
        with self._connection() as database:
            return int(database.execute("select count(*) from agreed").fetchone()[0])

    def find(self, path: WorkspacePath) -> SyncedFile | None:
        with self._connection() as database:
            return _select(database, path)

    def of_root(
        self, root: str | None, paths: Collection[WorkspacePath]
    ) -> dict[WorkspacePath, SyncedFile | None] | None:
        """Return the rows of these paths. Return None if the baseline was not made for the directory
        `root`."""
        rows: dict[WorkspacePath, SyncedFile | None] = {}
        with self._connection() as database:
            for path in paths or [""]:
                known_root, *row = database.execute(_OF_ROOT, (path,)).fetchone()
                if known_root != root:
                    return None
                if path:
                    rows[WorkspacePath(path)] = None if row[0] is None else SyncedFile(*row)
        return rows

    def among(
        self, paths: Collection[WorkspacePath]
    ) -> Callable[[WorkspacePath], SyncedFile | None]:
        """Return a function that looks up the row of one of these paths."""
        return self.tree().get if len(paths) > ROWS_LOOKED_UP_MAX else self.find

    def take(self, changes: Iterable[BaselineChange], *, wait: bool = True) -> None:
        """Write the new rows. If a row no longer equals `before`, another process wrote it, and that row
        stays.

        With `wait` False, these rows become durable with the next write that waits. A power cut until
        then may undo them, and the next sync compares these paths once more than necessary.
        """
        changes = list(changes)
        if not changes:
            return
        with self._write_connection(wait=wait) as database:
            rows_of, self._rows_of = self._rows_of, None
            # A single statement is atomic by itself.
            with nullcontext() if len(changes) == 1 else transaction(database):
                are_applied = [_apply(database, change) for change in changes]
            if rows_of is not None and all(are_applied):
                self._since.update((change.path, change.after) for change in changes)
                self._rows_of = rows_of

    def fact(self, name: str) -> str | None:
        """Return the stored value of a named fact about the two sides as a whole."""
        with self._connection() as database:
            row = database.execute("select value from fact where name = ?", (name,)).fetchone()
        return str(row[0]) if row else None

    def note(self, name: str, value: str, *, wait: bool = True) -> None:
        with self._transaction(wait=wait) as database:
            database.execute("insert or replace into fact values (?, ?)", (name, value))

    def begin_anew(self) -> None:
        """Delete all rows. Every file on either side is then new to the other side."""
        with self._transaction() as database:
            self._rows_of = None
            database.execute("delete from agreed")
            database.execute("delete from fact where name = 'head'")

    def erase_deleted(self) -> None:
        """Remove from the file what is no longer in its rows, and the stat cache, which is made again.

        Raises: Unavailable if another process keeps reading the file.
        """
        with self._transaction() as database:
            database.execute("delete from seen")
        with self._connection() as database:
            self._rows_of = None
            if not erase_deleted(database):
                raise Unavailable(
                    f"baseline {self._file}", "another process reads it", remedy="wait"
                )

    def known(self) -> Known:
        """Return the stat cache of the last scan."""
        with self._connection() as database:
            rows = database.execute(
                "select path, size, mtime, ctime, inode, version, object from seen"
            ).fetchall()
        return {
            path: (
                Signature(size, mtime, ctime, inode),
                FileState(Version(version), ObjectId(of), size),
            )
            for path, size, mtime, ctime, inode, version, of in rows
        }

    def keep_known(self, before: Known, after: Known) -> None:
        """Store the stat cache `after`, given that `before` is the cache stored last."""
        gone = [(path,) for path in before if path not in after]
        rows = [
            (path, *entry[0], entry[1].version, entry[1].object_id)
            for path, entry in after.items()
            if before.get(path) != entry
        ]
        with self._transaction() as database:
            database.executemany("delete from seen where path = ?", gone)
            database.executemany("insert or replace into seen values (?, ?, ?, ?, ?, ?, ?)", rows)

    def problems(self) -> list[Problem]:
        """Return the files that the last whole sync could not bring here."""
        with self._connection() as database:
            rows: list[tuple[str, ProblemKind, str]] = database.execute(
                "select path, kind, detail from problem"
            ).fetchall()
        return [Problem(*row) for row in rows]

    def keep_problems(self, problems: Iterable[Problem]) -> None:
        problems = list(problems)
        if problems == self.problems():
            return
        rows = [(problem.path, problem.kind, problem.detail) for problem in problems]
        with self._transaction() as database:
            database.execute("delete from problem")
            database.executemany("insert into problem values (?, ?, ?)", rows)

    def close(self) -> None:
        with self._lock:
            if self._database is not None and self._pid == os.getpid():
                self._database.close()
            self._database = None

    @contextmanager
    def _transaction(self, *, wait: bool = True) -> Generator[sqlite3.Connection]:
        """Commit all changes of the block, or none."""
        with self._write_connection(wait=wait) as database, transaction(database):
            yield database

    @contextmanager
    def _write_connection(self, *, wait: bool) -> Generator[sqlite3.Connection]:
        """Yield the connection, set to wait for the disk or not."""
        with self._connection() as database:
            if wait != self._is_synchronous:
                database.execute(f"pragma synchronous={'full' if wait else 'normal'}")
                self._is_synchronous = wait
            yield database

    @contextmanager
    def _connection(self) -> Generator[sqlite3.Connection]:
        """Yield the connection to one thread at a time. A forked child process opens its own."""
        with self._lock:
            try:
                if self._database is None or self._pid != os.getpid():
                    self._rows_of = None  # data versions of two connections are not comparable
                    self._is_synchronous = None
                    self._database, self._pid = self._open(), os.getpid()
                yield self._database
            except sqlite3.Error as error:
                reason, remedy = explained(error, damaged=_DAMAGED)
                raise Unavailable(f"baseline {self._file}", reason, remedy=remedy) from error

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._file or ":memory:", isolation_level=None, timeout=WAIT_S, check_same_thread=False
        )
        try:
            if self._file is not None:
                use_log(database, wait_s=WAIT_S)
                database.execute("pragma synchronous=full")
            version = int(database.execute("pragma user_version").fetchone()[0])
            if version > FORMAT:
                rule = f"is a newer format than this version can read ({FORMAT})"
                raise Refused(str(self._file), version, rule)
            if version < FORMAT:  # a new file
                with transaction(database):  # wait for the disk once, not once for each table
                    for table in _TABLES:
                        database.execute(table)
                    database.execute(f"pragma user_version = {FORMAT}")
        except BaseException:
            database.close()
            raise
        return database


def _select(database: sqlite3.Connection, path: WorkspacePath) -> SyncedFile | None:
    row = database.execute(
        "select version, object, token from agreed where path = ?", (path,)
    ).fetchone()
    return SyncedFile(*row) if row else None


def _apply(database: sqlite3.Connection, change: BaselineChange) -> bool:
    """Write the row if it still equals `before`. Return True if the row is now known to be `after`."""
    before = None if change.before is None else (change.path, *_columns(change.before))
    after = None if change.after is None else _columns(change.after)
    if before is not None and after is not None:
        done = database.execute(_UPDATE, (*after, *before))
    elif after is not None:
        done = database.execute(_INSERT, (change.path, *after))
    elif before is not None:
        done = database.execute(_DELETE, before)
    else:
        return False
    return done.rowcount == 1


_OF_ROOT = """
    select value, version, object, token from (select 1)
    left join fact on name = 'root' left join agreed on path = ?
"""
_INSERT = "insert or ignore into agreed (path, version, object, token) values (?, ?, ?, ?)"
_UPDATE = (
    "update agreed set version = ?, object = ?, token = ?"
    " where path = ? and version = ? and object = ? and token = ?"
)
_DELETE = "delete from agreed where path = ? and version = ? and object = ? and token = ?"


def _columns(agreed: SyncedFile) -> tuple[str, str, str]:
    return agreed.version, agreed.object_id, agreed.token
