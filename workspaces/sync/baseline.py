"""The baseline: the last tree on which this machine and the store agreed, and what scanning need not repeat.

A row says: at some moment both sides held this version of this path, and the store called it by this
token. It is written *after* the effect that made it true. So it may lag behind, which costs a look and
loses nothing; it never runs ahead. Two who write one row at the same instant say what they had seen of
it, and the later one's row stays out: a row that is put back would make a change look like none.

One thing is written before: that a file which is gone here is being deleted there. What has gone there then,
though nobody heard so, has not been deleted by somebody else, and what is here again is new.

A baseline belongs to one directory and one place in one store. With another place it begins anew, which
deletes nothing on either side; with another directory `reconcile` asks first.

SQLite in WAL mode with synchronous FULL: a row that was written survives a power cut.
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
from workspaces.localfs.sqlite_file import DAMAGED, explained, transaction, use_log
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem, ProblemKind
from workspaces.storage.blobs import Token
from workspaces.tree.scan import FileState, Known, Signature

FORMAT = 1
"""`PRAGMA user_version` of the file. Newer is refused."""

WAIT_S = 10.0

ROWS_LOOKED_UP_MAX = 50
"""More than this are found faster by reading them all."""

_DAMAGED = (
    DAMAGED,
    "remove it: the next sync compares anew, and a file that was deleted on one side comes back",
)

GONE = Version("")
"""Of no file."""

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
    """What both sides held."""

    version: Version
    object_id: ObjectId
    """By which the history finds the bytes again, as the base of a merge."""
    token: Token

    @property
    def going(self) -> SyncedFile:
        """The same while it is being deleted there, as it was here: no file has this version, whatever it
        holds."""
        return replace(self, version=GONE)

    @property
    def is_going(self) -> bool:
        return self.version == GONE


@dataclass(frozen=True, slots=True)
class BaselineChange:
    """A row before and after; None where there is none."""

    path: WorkspacePath
    before: SyncedFile | None
    after: SyncedFile | None


class Baseline:
    """One workspace's. Threads and processes may share the file."""

    def __init__(self, file: Path | None) -> None:
        """`file` None: in memory, for as long as this object lives."""
        self._file = file
        self._database: sqlite3.Connection | None = None
        self._pid = 0
        self._waits: bool | None = None
        """For the disk, as SQLite was told last."""
        self._lock = threading.Lock()
        self._rows: Mapping[WorkspacePath, SyncedFile] = {}
        self._rows_of: int | None = None
        """The state of the file, as SQLite counts what others have written. None: of none."""
        self._since: dict[WorkspacePath, SyncedFile | None] = {}
        """What was written here since these rows were read."""

    def tree(self) -> Mapping[WorkspacePath, SyncedFile]:
        """All rows; read again only when others have written. Those that were given stay as they are."""
        with self._asked() as database:
            state = int(database.execute("pragma data_version").fetchone()[0])
            if self._rows_of != state:
                found = database.execute("select path, version, object, token from agreed")
                self._rows = {WorkspacePath(path): SyncedFile(*rest) for path, *rest in found}
                self._rows_of = state
            elif self._since:
                rows = {**self._rows, **self._since}
                self._rows = {path: row for path, row in rows.items() if row is not None}
            self._since.clear()
            return self._rows

    def count(self) -> int:
        """How many files were agreed on."""
        with self._asked() as database:
            return int(database.execute("select count(*) from agreed").fetchone()[0])

    def find(self, path: WorkspacePath) -> SyncedFile | None:
        with self._asked() as database:
            return _agreed(database, path)

    def of_root(
        self, root: str | None, paths: Collection[WorkspacePath]
    ) -> dict[WorkspacePath, SyncedFile | None] | None:
        """The rows of these, which are known to be of this directory; else None."""
        found: dict[WorkspacePath, SyncedFile | None] = {}
        with self._asked() as database:
            for path in paths or [""]:
                known, *row = database.execute(_OF_ROOT, (path,)).fetchone()
                if known != root:
                    return None
                if path:
                    found[WorkspacePath(path)] = None if row[0] is None else SyncedFile(*row)
        return found

    def among(
        self, paths: Collection[WorkspacePath]
    ) -> Callable[[WorkspacePath], SyncedFile | None]:
        """Where the row of each of these is looked up."""
        return self.tree().get if len(paths) > ROWS_LOOKED_UP_MAX else self.find

    def take(self, steps: Iterable[BaselineChange], *, wait: bool = True) -> None:
        """Rows as they are now; where a row is not what was seen before, somebody else's stays.

        `wait` False: they become durable with the next that waits. A power cut may take them back until
        then, and the next sync will look at these paths once more than it had to."""
        taken = list(steps)
        if not taken:
            return
        with self._told(wait=wait) as database:
            rows_of, self._rows_of = self._rows_of, None
            # One statement is all of it or nothing by itself.
            with nullcontext() if len(taken) == 1 else transaction(database):
                are_taken = [_take(database, step) for step in taken]
            if rows_of is not None and all(are_taken):
                self._since.update((step.path, step.after) for step in taken)
                self._rows_of = rows_of

    def fact(self, name: str) -> str | None:
        """What is written down about the two sides as a whole."""
        with self._asked() as database:
            row = database.execute("select value from fact where name = ?", (name,)).fetchone()
        return str(row[0]) if row else None

    def note(self, name: str, value: str, *, wait: bool = True) -> None:
        with self._changing(wait=wait) as database:
            database.execute("insert or replace into fact values (?, ?)", (name, value))

    def begin_anew(self) -> None:
        """Nothing is agreed: what is found on either side is new to the other."""
        with self._changing() as database:
            self._rows_of = None
            database.execute("delete from agreed")
            database.execute("delete from fact where name = 'head'")

    def known(self) -> Known:
        """The stat cache of the last scan."""
        with self._asked() as database:
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
        """The stat cache, of which `before` was kept last."""
        gone = [(path,) for path in before if path not in after]
        rows = [
            (path, *entry[0], entry[1].version, entry[1].object_id)
            for path, entry in after.items()
            if before.get(path) != entry
        ]
        with self._changing() as database:
            database.executemany("delete from seen where path = ?", gone)
            database.executemany("insert or replace into seen values (?, ?, ?, ?, ?, ?, ?)", rows)

    def problems(self) -> list[Problem]:
        """What the last whole sync could not bring here."""
        with self._asked() as database:
            rows: list[tuple[str, ProblemKind, str]] = database.execute(
                "select path, kind, detail from problem"
            ).fetchall()
        return [Problem(*row) for row in rows]

    def keep_problems(self, problems: Iterable[Problem]) -> None:
        problems = list(problems)
        if problems == self.problems():
            return
        rows = [(problem.path, problem.kind, problem.detail) for problem in problems]
        with self._changing() as database:
            database.execute("delete from problem")
            database.executemany("insert into problem values (?, ?, ?)", rows)

    def close(self) -> None:
        with self._lock:
            if self._database is not None and self._pid == os.getpid():
                self._database.close()
            self._database = None

    @contextmanager
    def _changing(self, *, wait: bool = True) -> Generator[sqlite3.Connection]:
        """All of it or nothing."""
        with self._told(wait=wait) as database, transaction(database):
            yield database

    @contextmanager
    def _told(self, *, wait: bool) -> Generator[sqlite3.Connection]:
        """Whether to wait for the disk."""
        with self._asked() as database:
            if wait != self._waits:
                database.execute(f"pragma synchronous={'full' if wait else 'normal'}")
                self._waits = wait
            yield database

    @contextmanager
    def _asked(self) -> Generator[sqlite3.Connection]:
        """The connection, for one thread at a time; a forked child opens its own."""
        with self._lock:
            try:
                if self._database is None or self._pid != os.getpid():
                    self._rows_of = None  # the counts of two connections have nothing in common
                    self._waits = None
                    self._database, self._pid = self._opened(), os.getpid()
                yield self._database
            except sqlite3.Error as error:
                reason, remedy = explained(error, damaged=_DAMAGED)
                raise Unavailable(f"baseline {self._file}", reason, remedy=remedy) from error

    def _opened(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._file or ":memory:", isolation_level=None, timeout=WAIT_S, check_same_thread=False
        )
        try:
            if self._file is not None:
                use_log(database, wait_s=WAIT_S)
                database.execute("pragma synchronous=full")
            found = int(database.execute("pragma user_version").fetchone()[0])
            if found > FORMAT:
                rule = f"is a newer format than this version can read ({FORMAT})"
                raise Refused(str(self._file), found, rule)
            if found < FORMAT:
                with transaction(database):  # one wait for the disk, and not one for each
                    for table in _TABLES:
                        database.execute(table)
                    database.execute(f"pragma user_version = {FORMAT}")
        except BaseException:
            database.close()
            raise
        return database


def _agreed(database: sqlite3.Connection, path: WorkspacePath) -> SyncedFile | None:
    row = database.execute(
        "select version, object, token from agreed where path = ?", (path,)
    ).fetchone()
    return SyncedFile(*row) if row else None


def _take(database: sqlite3.Connection, step: BaselineChange) -> bool:
    """The row as it is now, where it is what was seen before; whether that is known."""
    before = None if step.before is None else (step.path, *_columns(step.before))
    after = None if step.after is None else _columns(step.after)
    if before is not None and after is not None:
        done = database.execute(_UPDATE, (*after, *before))
    elif after is not None:
        done = database.execute(_INSERT, (step.path, *after))
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
