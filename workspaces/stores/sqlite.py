"""Records in one SQLite file: for one machine, any number of threads and processes.

One table clustered by its key, so that a scan reads neighbours. WAL lets readers go on while someone
writes; synchronous FULL makes a returned write survive a power cut, at the cost of one fdatasync of
the log. Every batch begins with BEGIN IMMEDIATE: a transaction that only turns into a writer later
fails at once with SQLITE_BUSY_SNAPSHOT, whatever the busy timeout says (241 of 400 did, measured).

Connections are one per thread and stay open.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workspaces.clock import Clock, SystemClock
from workspaces.errors import Conflict, Refused, Unavailable
from workspaces.expect import is_met
from workspaces.records import (
    SCAN_ITEMS_MAX,
    Change,
    Counter,
    Delete,
    Item,
    Key,
    Put,
    check_batch,
    encoded,
)

FORMAT = 1
"""`PRAGMA user_version` of the file. Newer is refused; older is migrated on opening."""

WAIT_FOR_LOCK_S = 10.0
"""A batch takes well under a millisecond: whoever waits this long waits for something stuck."""

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "temp_store=MEMORY",
    "trusted_schema=OFF",
)

_TABLE = """
create table if not exists item (
    partition text not null,
    sort text not null,
    counter integer not null,
    value text not null,
    expires_at real,
    primary key (partition, sort)
) without rowid
"""
_EXPIRY = (
    "create index if not exists item_expires on item (expires_at) where expires_at is not null"
)
_READ = "select counter, value, expires_at from item where partition = ? and sort = ?"
_WRITE = (
    "insert or replace into item (partition, sort, counter, value, expires_at) values (?,?,?,?,?)"
)
_DELETE = "delete from item where partition = ? and sort = ?"
_SWEEP = "delete from item where expires_at <= ?"


class SqliteRecords:
    def __init__(self, file: Path, *, clock: Clock | None = None) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        self._threads = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._open_lock = threading.Lock()
        with self._translated():
            self._prepare()

    def get(self, key: Key) -> Item | None:
        try:
            with self._translated():
                row = self._connection().execute(_READ, key).fetchone()
        except UnicodeEncodeError:  # half of a surrogate pair: `write` lets no such key in
            return None
        return self._item(key, row)

    def write(self, *changes: Change) -> tuple[Counter, ...]:
        check_batch(changes)
        texts = [encoded(change) if isinstance(change, Put) else "" for change in changes]
        with self._translated(), self._transaction() as connection:
            counters: list[Counter] = []
            for change, text in zip(changes, texts, strict=True):
                current = self._item(change.key, connection.execute(_READ, change.key).fetchone())
                counter = current.counter if current else None
                if not is_met(change.expect, counter):
                    raise Conflict(
                        "record", str(change.key), expected=change.expect, actual=counter
                    )
                if isinstance(change, Put):
                    counters.append((counter or 0) + 1)
                    row = (*change.key, counters[-1], text, change.expires_at)
                    connection.execute(_WRITE, row)
                elif isinstance(change, Delete):
                    connection.execute(_DELETE, change.key)
            return tuple(counters)

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        query = (
            "select sort, counter, value, expires_at from item where partition = ? and sort >= ?"
            + ("" if end is None else " and sort < ?")
            + " and (expires_at is null or expires_at > ?)"
            + (" order by sort desc" if backwards else " order by sort")
            + " limit ?"
        )
        bounds = (partition, start) if end is None else (partition, start, end)
        arguments = (*bounds, self._now(), min(limit, SCAN_ITEMS_MAX))
        with self._translated():
            rows = self._connection().execute(query, arguments).fetchall()
        return [
            Item(Key(partition, sort), json.loads(value), counter, expires_at)
            for sort, counter, value, expires_at in rows
        ]

    def sweep(self) -> int:
        """Remove what has expired; nobody can see it any more. Returns how many items went."""
        with self._translated(), self._transaction() as connection:
            return connection.execute(_SWEEP, (self._now(),)).rowcount

    def close(self) -> None:
        with self._open_lock:
            for connection in self._open:
                connection.close()
            self._open.clear()
        self._threads = threading.local()

    def _prepare(self) -> None:
        connection = self._connection()
        found = connection.execute("pragma user_version").fetchone()[0]
        if found > FORMAT:
            raise Refused(
                str(self._file),
                found,
                f"is a newer format than this version can read ({FORMAT})",
                remedy="use the version of workspace-harness that wrote it, or a newer one",
            )
        if found < FORMAT:
            with self._transaction() as transaction:
                transaction.execute(_TABLE)
                transaction.execute(_EXPIRY)
                transaction.execute(f"pragma user_version = {FORMAT}")

    def _item(self, key: Key, row: tuple[Counter, str, float | None] | None) -> Item | None:
        if row is None:
            return None
        counter, value, expires_at = row
        if expires_at is not None and expires_at <= self._now():
            return None
        return Item(key, json.loads(value), counter, expires_at)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self._file, isolation_level=None, timeout=WAIT_FOR_LOCK_S, check_same_thread=False
            )
            with self._open_lock:
                self._open.append(connection)
            for pragma in _PRAGMAS:
                connection.execute(f"pragma {pragma}")
            self._threads.connection = connection
        return connection

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute("begin immediate")
        try:
            yield connection
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            reason, remedy = _explained(error)
            raise Unavailable(f"record store {self._file}", reason, remedy=remedy) from error


def _explained(error: sqlite3.Error) -> tuple[str, str]:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "it is locked by another process", "end the process that holds it, then try again"
    if name.startswith("SQLITE_FULL"):
        return "the disk is full", "free some space and try again; nothing was half-written"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return "it cannot be written", "check that the home exists and belongs to you"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return (
            "the file is damaged",
            "restore it from a copy; the workspaces themselves are not in it",
        )
    if name.startswith("SQLITE_IOERR"):  # also a disk too full for what WAL keeps beside the file
        return str(error), "check that the disk has space and works, then try again"
    return str(error), "try again; if it stays so, run `harness doctor`"
