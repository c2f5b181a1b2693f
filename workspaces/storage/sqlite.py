"""Records in one SQLite file: for one machine, any number of threads and processes.

There is one table, clustered by its key, so that a scan reads neighbouring rows. WAL lets readers continue
during a write. Synchronous FULL makes a returned write survive a power cut, at the cost of one fdatasync of
the log. Every batch begins with BEGIN IMMEDIATE. A transaction that becomes a writer only later fails at
once with SQLITE_BUSY_SNAPSHOT, whatever the busy timeout says (241 of 400 did, measured).

A pool lends each connection to one thread at a time. Connections belong to the process that opened them,
and so does the lock that orders its writing threads. After a fork the child finds none and makes its own.
The child must never touch inherited connections, not even to close them. So a forked child that does not
exec has to leave through `os._exit`, as multiprocessing's children do.

Expired items are invisible at once. A write a minute later, or after that, removes them.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import Wildcard, is_met
from workspaces.errors import Conflict, Refused, Unavailable
from workspaces.localfs.sqlite_file import (
    DAMAGED,
    LOCKED,
    ReadOnlyConnection,
    explained,
    is_unwritable,
    open_for_reading,
    transaction,
    use_log,
)
from workspaces.localfs.sqlite_wipe import wipe
from workspaces.storage.records import (
    SCAN_ITEMS_MAX,
    STORE_NAME,
    Counter,
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    check_batch,
    encoded_batch,
)
from workspaces.storage.timing import timed

FORMAT = 1
"""`PRAGMA user_version` of the file. A newer format is refused; an older one is migrated on opening."""

WAIT_FOR_LOCK_S = 10.0
"""A batch takes well under a millisecond: a caller that waits this long waits for a stuck process."""

CONNECTIONS_KEPT_MAX = 16
"""Connections that stay open for later calls. Further ones are closed when their thread is done."""

SWEEP_EVERY_S = 60.0
SWEEP_ITEMS_MAX = 500
"""Expired items that one batch removes, so that it takes few milliseconds. Later batches remove the rest."""

WAL_PAGES = 256
"""Length of the log from which SQLite overwrites it from its beginning.

While the log grows, a commit takes 250 µs instead of 115, because the file system allocates space. SQLite's
own 1 000 pages made the first four hundred appends slow.
"""

_PRAGMAS = (
    f"wal_autocheckpoint={WAL_PAGES}",
    "synchronous=FULL",
    "temp_store=MEMORY",
    "trusted_schema=OFF",
    "secure_delete=ON",  # as Debian builds it: what is replaced leaves no bytes in its page
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
_COUNTER = (
    "select counter from item where partition = ? and sort = ?"
    " and (expires_at is null or expires_at > ?)"
)
_WRITE_NEW = (
    "insert into item (partition, sort, counter, value, expires_at) values (?,?,1,?,?)"
    " on conflict do update set value = excluded.value, expires_at = excluded.expires_at, counter = 1"
    " where expires_at <= ?"
)
_WRITE_SEEN = (
    "update item set counter = counter + 1, value = ?, expires_at = ?"
    " where partition = ? and sort = ? and counter = ? and (expires_at is null or expires_at > ?)"
)
_WRITE_ANY = (
    "insert into item (partition, sort, counter, value, expires_at) values (?,?,1,?,?)"
    " on conflict do update set value = excluded.value, expires_at = excluded.expires_at,"
    " counter = case when expires_at is null or expires_at > ? then counter + 1 else 1 end"
    " returning counter"
)
_DELETE = "delete from item where partition = ? and sort = ?"
_DELETE_EXPIRED = "delete from item where expires_at <= ?"
_SWEEP = (
    "delete from item where (partition, sort) in"
    " (select partition, sort from item where expires_at <= ? order by expires_at limit ?)"
)


class SqliteRecords:
    def __init__(
        self, file: Path, *, clock: Clock | None = None, wait_s: float = WAIT_FOR_LOCK_S
    ) -> None:
        self._file = file
        self._clock = clock or SystemClock()
        self._wait_s = wait_s
        self._pools: dict[int, list[sqlite3.Connection]] = {}
        """Open connections that no thread uses, by process id."""
        self._write_locks: dict[int, threading.Lock] = {}
        """The lock that orders the writing threads of a process, by process id."""
        self._is_closed = False
        self._sweep_at = 0.0
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    @timed("records", "get")
    def get(self, key: Key) -> Item | None:
        try:
            with self._connected() as connection:
                return self._item(key, connection.execute(_READ, key).fetchone())
        except UnicodeEncodeError:  # half of a surrogate pair: `write` refuses such keys
            return None

    @timed("records", "write")
    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        check_batch(changes)
        texts = encoded_batch(changes)
        with self._write_turn(), self._connected() as connection, transaction(connection):
            counters: list[Counter] = []
            now = self._now()
            for change, text in zip(changes, texts, strict=True):
                if isinstance(change, Put):
                    counter = _put(connection, change, text, now)
                    if counter is not None:
                        counters.append(counter)
                        continue
                row = connection.execute(_COUNTER, (*change.key, now)).fetchone()
                current: Counter | None = row[0] if row else None
                if isinstance(change, Put) or not is_met(change.expect, current):
                    raise Conflict(
                        "record", str(change.key), expected=change.expect, actual=current
                    )
                if isinstance(change, Delete):
                    connection.execute(_DELETE, change.key)
            self._sweep_if_due(connection)
            return tuple(counters)

    @timed("records", "scan")
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
        arguments = (*bounds, self._now(), max(0, min(limit, SCAN_ITEMS_MAX)))
        with self._connected() as connection:
            return [
                Item(Key(partition, sort), json.loads(value), counter, expires_at)
                for sort, counter, value, expires_at in connection.execute(query, arguments)
            ]

    def close(self) -> None:
        """Close the store, from any thread. Running calls end normally; later calls are refused."""
        self._is_closed = True
        self._shrink_pool()

    def _prepare(self) -> None:
        """Create or migrate the file. Only the owner may read a new file, whatever the umask says.

        SQLite gives its companion files the same mode. If the file cannot be made, the first connection
        raises the error.
        """
        with suppress(OSError):
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with self._connected() as connection:
            file_format = connection.execute("pragma user_version").fetchone()[0]
        if file_format > FORMAT:
            raise Refused(
                str(self._file),
                file_format,
                f"is a newer format than this version can read ({FORMAT})",
                remedy="use the version of workspace-harness that wrote it, or a newer one",
            )
        if file_format < FORMAT:
            with self._connected() as connection, transaction(connection):
                connection.execute(_TABLE)
                connection.execute(_EXPIRY)
                connection.execute(f"pragma user_version = {FORMAT}")

    def _sweep_if_due(self, connection: sqlite3.Connection) -> None:
        now = self._now()
        if now < self._sweep_at <= now + SWEEP_EVERY_S:  # if further ahead, the clock was set back
            return
        swept = connection.execute(_SWEEP, (now, SWEEP_ITEMS_MAX)).rowcount
        self._sweep_at = now if swept == SWEEP_ITEMS_MAX else now + SWEEP_EVERY_S

    def _item(self, key: Key, row: tuple[Counter, str, float | None] | None) -> Item | None:
        if row is None:
            return None
        counter, value, expires_at = row
        if expires_at is not None and expires_at <= self._now():
            return None
        return Item(key, json.loads(value), counter, expires_at)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        """Yield a connection that no other thread uses. Translate its errors into those of the port.

        One context does both, because each call enters it and most calls take a few microseconds.

        There is no lock: pop and append of a list are atomic. At the moment of a fork another thread of the
        parent could hold a lock, and then the child would find it locked forever.

        Raises: Unavailable if SQLite fails or the store has been closed.
        """
        pool = self._pools.setdefault(os.getpid(), [])
        connection = None
        try:
            try:
                connection = pool.pop()
            except IndexError:
                connection = self._connect()
            yield connection
        except sqlite3.Error as error:
            raise self._unavailable(*explained(error, damaged=_DAMAGED)) from error
        except json.JSONDecodeError as error:
            raise self._unavailable(*_DAMAGED) from error
        finally:
            if isinstance(connection, ReadOnlyConnection):
                connection.close()  # the next call may find that the disk takes writes again
            elif connection is not None:
                pool.append(connection)
                if self._is_closed or len(pool) > CONNECTIONS_KEPT_MAX:
                    self._shrink_pool(0 if self._is_closed else CONNECTIONS_KEPT_MAX)

    @contextmanager
    def _write_turn(self) -> Generator[None]:
        """Let one thread of this process write at a time.

        SQLite itself lets a caller that finds the file locked sleep and try again. Of a hundred such callers
        some never wake at the right moment. The lock belongs to this process. A thread of the parent may hold
        its lock at the moment of a fork, but the forked child does not use that one.

        Raises: Unavailable if the lock is not free in time.
        """
        lock = self._write_locks.setdefault(os.getpid(), threading.Lock())
        if not lock.acquire(timeout=self._wait_s):
            raise self._unavailable(*LOCKED)
        try:
            yield
        finally:
            lock.release()

    def _shrink_pool(self, connections_max: int = 0) -> None:
        pool = self._pools.get(os.getpid(), [])
        while len(pool) > connections_max:
            try:
                connection = pool.pop()
            except IndexError:  # another thread took the last one; it closes it when it returns it
                return
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        if self._is_closed:
            raise Unavailable(f"record store {self._file}", "it has been closed", store=STORE_NAME)
        try:
            return self._connect_to_write()
        except sqlite3.OperationalError as error:
            if not is_unwritable(error):
                raise
            try:
                return open_for_reading(self._file)
            except sqlite3.OperationalError:
                raise error from None  # the first reason tells a person more

    def _connect_to_write(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, isolation_level=None, timeout=self._wait_s, check_same_thread=False
        )
        try:
            self._make_ready(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_ready(self, connection: sqlite3.Connection) -> None:
        use_log(connection, wait_s=self._wait_s)
        for pragma in _PRAGMAS:
            connection.execute(f"pragma {pragma}")

    def _unavailable(self, reason: str, remedy: str) -> Unavailable:
        return Unavailable(f"record store {self._file}", reason, remedy=remedy, store=STORE_NAME)


def _put(connection: sqlite3.Connection, put: Put, text: str, now: float) -> Counter | None:
    """Put the item and return its new counter; None if the condition does not hold.

    It is one statement, because a batch has many and all other writers wait for its end.
    """
    match put.expect:
        case Wildcard.ANY:
            values = (*put.key, text, put.expires_at, now)
            return connection.execute(_WRITE_ANY, values).fetchone()[0]
        case Wildcard.ABSENT:
            cursor = connection.execute(_WRITE_NEW, (*put.key, text, put.expires_at, now))
            return 1 if cursor.rowcount else None
        case seen:
            values = (text, put.expires_at, *put.key, seen, now)
            return seen + 1 if connection.execute(_WRITE_SEEN, values).rowcount else None


def wipe_records(file: Path, now: float) -> None:
    """Remove expired items, and the bytes of everything that was ever deleted or replaced in the file.

    Raises: Busy while other processes use the file for long. Unavailable.
    """
    wipe(file, lambda database: database.execute(_DELETE_EXPIRED, (now,)))


_DAMAGED = (
    DAMAGED,
    "restore it from a copy, or run `harness admin adopt`: it moves the file aside and makes records for the "
    "workspaces, whose files are not in it",
)
