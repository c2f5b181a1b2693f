"""Records in one PostgreSQL table, for many machines.

    partition, sort (bytea, the key) · counter (bigint) · value (bytea, JSON) · expires_at (float8)

Keys and values are bytes: they sort as UTF-8 bytes and may contain U+0000, whatever the database's encoding
and collation are. An item without an expiry has `infinity`.

A batch locks all its keys before it reads the first counter, and holds the locks until it has ended. The
locks are advisory locks of PostgreSQL on hashes of the keys, taken in ascending order, shared for guards. So
batches with a common key follow one another as in strict two-phase locking. None wait in a circle, and a
condition can name an item that does not exist. Row locks could not protect such an item.
SERIALIZABLE could, but in a small table it also cancels batches that have nothing in common.

A batch takes two round trips: begin, lock and read; then write and commit. Between them the conditions are
decided here.

Lost answers. The first answer contains the number of the transaction. If the connection breaks after the
commit was sent, the server is asked what became of that number. If it cannot tell, the call raises
`Unavailable`, never `Conflict`.

Expired items are invisible at once. A write removes them when an hour has passed, at most once a minute. The
hour is for servers whose clocks differ.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, LiteralString, TypeVar

from psycopg.types.numeric import Int8

from workspaces.clock import Clock, SystemClock
from workspaces.conditions import is_met
from workspaces.errors import Conflict, Unavailable
from workspaces.storage.attempts import AnswerLost, Throttled, retried
from workspaces.storage.postgres.database import Database, ResultRow, Statement, TransactionId
from workspaces.storage.records import (
    SCAN_ITEMS_MAX,
    Check,
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

SWEEP_EVERY_S = 60.0
SWEEP_AFTER_S = 3600.0
"""Clocks of servers may differ. One that is ahead must not remove what another still reads."""
SWEEP_ITEMS_MAX = 500

STATUS_ASKED_MAX = 100
STATUS_PAUSE_S = 0.2
"""A server learns late that a connection broke. It ends the transaction of a silent client itself."""

_LOCK = (
    "select case when is_shared then pg_advisory_xact_lock_shared(number)"
    " else pg_advisory_xact_lock(number) end"
    " from unnest(%b::bigint[], %b::boolean[]) as wanted (number, is_shared)"
)
_COUNTERS = (
    "select partition, sort, counter from harness_records"
    " join unnest(%b::bytea[], %b::bytea[]) as wanted (partition, sort) using (partition, sort)"
    " where expires_at > %b"
)
_PUT = (
    "insert into harness_records (partition, sort, counter, value, expires_at)"
    " select * from unnest(%b::bytea[], %b::bytea[], %b::bigint[], %b::bytea[], %b::float8[])"
    " on conflict (partition, sort) do update set counter = excluded.counter,"
    " value = excluded.value, expires_at = excluded.expires_at"
)
_DELETE = (
    "delete from harness_records as item using unnest(%b::bytea[], %b::bytea[]) as gone (partition, sort)"
    " where item.partition = gone.partition and item.sort = gone.sort"
)
_GET = (
    "select sort, counter, value, expires_at from harness_records"
    " where partition = %b and sort = %b and expires_at > %b"
)
_SCANS: dict[tuple[bool, bool], LiteralString] = {
    (False, False): (
        "select sort, counter, value, expires_at from harness_records"
        " where partition = %b and sort >= %b and expires_at > %b order by sort limit %b"
    ),
    (True, False): (
        "select sort, counter, value, expires_at from harness_records"
        " where partition = %b and sort >= %b and sort < %b and expires_at > %b order by sort limit %b"
    ),
    (False, True): (
        "select sort, counter, value, expires_at from harness_records"
        " where partition = %b and sort >= %b and expires_at > %b order by sort desc limit %b"
    ),
    (True, True): (
        "select sort, counter, value, expires_at from harness_records"
        " where partition = %b and sort >= %b and sort < %b and expires_at > %b"
        " order by sort desc limit %b"
    ),
}
"""By whether there is an end, and whether it goes backwards."""
_SWEEP = (
    "delete from harness_records where (partition, sort) in"
    " (select partition, sort from harness_records where expires_at <= %b"
    " order by expires_at limit %b for update skip locked)"
)
_NUMBER: Statement = ("select pg_current_xact_id()::text", ())
_COMMIT: Statement = ("commit", ())
_ROLLBACK: Statement = ("rollback", ())

T = TypeVar("T")


class PostgresRecords:
    """A record store in one table, which `create_table` has made."""

    def __init__(
        self,
        address: str,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._database = Database(address)
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._sweep_at = 0.0

    @timed("records", "get")
    def get(self, key: Key) -> Item | None:
        arguments = (_bytes(key.partition), _bytes(key.sort), self._now())
        items = retried(lambda: self._read(key.partition, _GET, arguments), self._sleep)
        return items[0] if items else None

    @timed("records", "write")
    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        check_batch(changes)
        texts = encoded_batch(changes)
        if all(isinstance(change, Check) for change in changes):
            retried(lambda: self._check(changes), self._sleep)
            return ()
        counters = retried(lambda: self._write(changes, texts), self._sleep)
        self._sweep_if_due()
        return counters

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
        limit = max(0, min(limit, SCAN_ITEMS_MAX))
        bounds = [_bytes(text) for text in (partition, start, end) if text is not None]
        query = _SCANS[end is not None, backwards]
        return retried(
            lambda: self._read(partition, query, (*bounds, self._now(), Int8(limit))), self._sleep
        )

    def close(self) -> None:
        """Close the store, from any thread. Running calls end normally; later calls are refused."""
        self._database.close()

    def _read(self, partition: str, query: LiteralString, arguments: Sequence[Any]) -> list[Item]:
        with self._database.connected() as connection:
            (rows,) = connection.ask((query, arguments))
        try:
            return [_item(partition, row) for row in rows]
        except ValueError as error:  # neither UTF-8 nor JSON
            raise self._database.foreign() from error

    def _check(self, changes: Sequence[RecordChange]) -> None:
        """Decide conditions alone. One statement sees one moment, so there is nothing to lock."""
        if changes:
            with self._database.connected() as connection:
                (rows,) = connection.ask(self._counters_query(changes))
            _check_conditions(changes, _counters(rows))

    def _write(self, changes: Sequence[RecordChange], texts: Sequence[str]) -> tuple[Counter, ...]:
        """Try a batch once.

        Raises: Throttled (and so AnswerLost) only if nothing was written.
        """
        sent: TransactionId | None = None
        counters: dict[Key, Counter] = {}
        try:
            with self._database.connected() as connection:
                _, ((number,),), rows = connection.begin(
                    _locks(changes), _NUMBER, self._counters_query(changes)
                )
                before = _counters(rows)
                try:
                    _check_conditions(changes, before)
                except Conflict:
                    connection.ask(_ROLLBACK)
                    raise
                puts = [change for change in changes if isinstance(change, Put)]
                counters = {put.key: before.get(put.key, 0) + 1 for put in puts}
                sent = TransactionId(number, connection.server_start)
                connection.ask(*_effects(changes, texts, counters), _COMMIT)
        except AnswerLost as error:
            if sent is None or not self._has_committed(sent, error):
                raise
        return tuple(counters.values())

    def _has_committed(self, sent: TransactionId, error: AnswerLost) -> bool:
        for _ in range(STATUS_ASKED_MAX):
            try:
                has_committed = self._database.has_committed(sent)
            except (Throttled, Unavailable):
                break
            if has_committed is not None:
                return has_committed
            self._sleep(STATUS_PAUSE_S)
        raise self._database.unknown() from error

    def _sweep_if_due(self) -> None:
        """Remove what expired long ago. The write has already happened: a failure is for the next sweep."""
        now = self._now()
        if now < self._sweep_at <= now + SWEEP_EVERY_S:  # if further ahead, the clock was set back
            return
        self._sweep_at = now + SWEEP_EVERY_S
        with suppress(Unavailable, Throttled), self._database.connected() as connection:
            connection.ask((_SWEEP, (now - SWEEP_AFTER_S, Int8(SWEEP_ITEMS_MAX))))

    def _counters_query(self, changes: Sequence[RecordChange]) -> Statement:
        return (_COUNTERS, (*_columns([change.key for change in changes]), self._now()))

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _check_conditions(changes: Sequence[RecordChange], counters: Mapping[Key, Counter]) -> None:
    """Raise Conflict for the first condition that does not hold."""
    for change in changes:
        counter = counters.get(change.key)
        if not is_met(change.expect, counter):
            raise Conflict("record", str(change.key), expected=change.expect, actual=counter)


def _effects(
    changes: Sequence[RecordChange], texts: Sequence[str], counters: Mapping[Key, Counter]
) -> list[Statement]:
    """Return the statements that write a batch."""
    effects: list[Statement] = []
    puts = [(c, t) for c, t in zip(changes, texts, strict=True) if isinstance(c, Put)]
    if puts:
        new = [Int8(counters[put.key]) for put, _ in puts]
        values = [text.encode() for _, text in puts]
        expiries = [math.inf if put.expires_at is None else put.expires_at for put, _ in puts]
        keys = _columns([put.key for put, _ in puts])
        effects.append((_PUT, (*keys, new, values, [float(one) for one in expiries])))
    gone = [change.key for change in changes if isinstance(change, Delete)]
    if gone:
        effects.append((_DELETE, _columns(gone)))
    return effects


def _locks(changes: Sequence[RecordChange]) -> Statement:
    """Return the statement that locks the keys of a batch, in an order that all batches share."""
    wanted: dict[int, bool] = {}
    for change in changes:
        number = _lock_number(change.key)
        wanted[number] = isinstance(change, Check) and wanted.get(number, True)
    numbers = sorted(wanted)
    return (_LOCK, ([Int8(number) for number in numbers], [wanted[number] for number in numbers]))


def _lock_number(key: Key) -> int:
    """Return the lock of a key. Two keys with the same lock only wait for each other."""
    partition, sort = map(_bytes, key)
    text = len(partition).to_bytes(4, "big") + partition + sort
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def _columns(keys: Sequence[Key]) -> tuple[list[bytes], list[bytes]]:
    return [_bytes(key.partition) for key in keys], [_bytes(key.sort) for key in keys]


def _counters(rows: Sequence[ResultRow]) -> dict[Key, Counter]:
    return {Key(partition.decode(), sort.decode()): counter for partition, sort, counter in rows}


def _item(partition: str, row: ResultRow) -> Item:
    sort, counter, value, expires_at = row
    until = None if expires_at == math.inf else expires_at
    return Item(Key(partition, sort.decode()), json.loads(value), counter, until)


def _bytes(text: str) -> bytes:
    return text.encode(
        errors="surrogatepass"
    )  # `write` refuses halves of pairs, so nothing is found
