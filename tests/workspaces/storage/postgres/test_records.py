"""Records in PostgreSQL: the conformance tests, keys and values as bytes, expiry, batches that meet."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.race import race
from tests.conformance.record_store import RecordStoreConformance
from tests.conformance.serial import has_an_order, run_batches
from tests.postgres_server import PostgresServer, schema_of
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Unavailable
from workspaces.storage.attempts import AnswerLost
from workspaces.storage.postgres import database, records
from workspaces.storage.postgres.database import Database
from workspaces.storage.postgres.records import SWEEP_AFTER_S, SWEEP_EVERY_S, PostgresRecords
from workspaces.storage.records import Check, Delete, Item, Key, Put

A, B, C = Key("p", "a"), Key("p", "b"), Key("p", "c")
LONG_S = 600.0
ORDERS = 500 if os.environ.get("SOAK") else 15


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(postgres_address: str, clock: ManualClock) -> Iterator[PostgresRecords]:
    store = PostgresRecords(postgres_address, clock=clock)
    yield store
    store.close()


class TestPostgresRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, store: PostgresRecords) -> PostgresRecords:
        return store


class TestBytes:
    """The server of these tests has the encoding SQL_ASCII: nothing may depend on it."""

    def test_postgres_keys_may_contain_nul_and_sort_by_bytes(self, store: PostgresRecords) -> None:
        names = ["a", "a\0", "a\0b", "a\1", "\0", "aa", "Ä", "Z", "\U0010ffff", "\\x00", "'", "%s"]
        store.write(*(Put(Key("p\0q", name), {"name": name}, ABSENT) for name in names))
        found = store.scan("p\0q")
        assert [item.key.sort for item in found] == sorted(names, key=str.encode)
        assert [item.value["name"] for item in found] == [item.key.sort for item in found]
        assert sorts(store.scan("p\0q", start="a\0", end="aa")) == ["a\0", "a\0b", "a\1"]
        assert store.scan("p") == []
        store.write(*(Delete(Key("p\0q", name), 1) for name in names))
        assert store.scan("p\0q") == []

    def test_a_postgres_value_may_contain_any_text(self, store: PostgresRecords) -> None:
        value = {"nul": "\0", "any": "\ufffe\U0001f600\\u0000", "deep": [[[{"\0": 10**30}]]]}
        store.write(Put(A, value))
        assert values(store, A) == [value]

    def test_the_longest_postgres_key_fits_into_the_index(self, store: PostgresRecords) -> None:
        random_bytes = "".join(chr(33 + n * 7919 % 90) for n in range(1024))  # nothing to compress
        key = Key(random_bytes, random_bytes[::-1])
        assert store.write(Put(key, {"n": 1}, ABSENT)) == (1,)
        assert sorts(store.scan(key.partition, end=key.sort + "\0" * 2000)) == [key.sort]

    def test_a_postgres_scan_accepts_bounds_that_are_no_valid_text(
        self, store: PostgresRecords
    ) -> None:
        store.write(Put(A, {}))
        assert store.scan("\ud800") == []
        assert sorts(store.scan("p", end="\udfff")) == ["a"]
        assert store.scan("p", start="b", end="a") == []
        assert store.scan("p", limit=-1) == []


class TestExpiry:
    def test_postgres_stores_the_fraction_of_an_expiry_exactly(
        self, store: PostgresRecords, clock: ManualClock
    ) -> None:
        until = clock.now().timestamp() + 0.123456
        store.write(Put(A, {}, expires_at=until), Put(B, {}))
        assert [item.expires_at for item in store.scan("p")] == [until, None]
        clock.advance(0.123455)
        assert store.get(A) is not None
        clock.advance(0.000001)
        assert store.get(A) is None

    def test_postgres_removes_what_expired_an_hour_ago(
        self,
        store: PostgresRecords,
        clock: ManualClock,
        postgres: PostgresServer,
        postgres_address: str,
    ) -> None:
        def rows() -> int:
            table = f"{schema_of(postgres_address)}.harness_records"
            return postgres.run(f"select count(*) from {table}")[0][0]

        soon = clock.now().timestamp() + 1
        store.write(*(Put(Key("c", str(n)), {}, expires_at=soon) for n in range(10)), Put(A, {}))
        clock.advance(SWEEP_AFTER_S)
        store.write(Put(A, {}))
        assert rows() == 11, "the clock of another server may be behind"
        clock.advance(SWEEP_EVERY_S)
        store.write(Put(A, {}, expires_at=clock.now().timestamp() + 1))
        assert rows() == 1
        clock.advance(SWEEP_AFTER_S + 2)
        store.write(Put(B, {}))
        clock.jump(-86400)
        store.write(Put(B, {}))
        assert rows() == 1, "a clock that was set back does not stop the sweep"

    def test_a_put_over_an_expired_postgres_item_starts_a_new_counter(
        self, store: PostgresRecords, clock: ManualClock
    ) -> None:
        store.write(Put(A, {}))
        store.write(Put(A, {}, expires_at=clock.now().timestamp() + 1))
        clock.advance(1)
        store.write(Delete(A, ABSENT), Check(B, ABSENT))
        assert store.write(Put(A, {"n": 1}), Put(B, {})) == (1, 1)


class TestMeetings:
    def test_two_postgres_batches_that_exclude_each_other_never_both_pass(
        self, store: PostgresRecords
    ) -> None:
        """Each requires that the other's item is absent. No row exists that one of them could lock."""
        for n in range(25):
            mine = [Key(f"{n}", "a"), Key(f"{n}", "b")]
            winners = race(
                2, lambda i, k=mine: store.write(Check(k[1 - i], ABSENT), Put(k[i], {}, ABSENT))
            )
            assert len(winners) == 1

    def test_one_order_of_all_postgres_batches_explains_their_answers(
        self, store: PostgresRecords
    ) -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        for number in range(ORDERS):
            done = run_batches(store, f"p{number}", seed + number)
            assert has_an_order(done), (seed, number, done)

    def test_a_postgres_delete_waits_for_a_batch_that_creates_its_item(
        self, store: PostgresRecords, postgres_address: str
    ) -> None:
        """It must not find nothing to delete and then pass behind that batch."""
        with holding(postgres_address, A) as let_go:
            deleted = threading.Thread(target=lambda: store.write(Delete(A), Put(B, {})))
            deleted.start()
            other = PostgresRecords(postgres_address)
            other.write(Put(C, {}))  # nothing in common: it does not wait
            assert sorts(other.scan("p")) == ["c"]
            let_go()
            deleted.join(timeout=LONG_S)
            other.close()
        assert sorts(store.scan("p")) == ["b", "c"]

    def test_guards_of_the_same_postgres_item_do_not_wait_for_each_other(
        self, store: PostgresRecords, postgres_address: str
    ) -> None:
        store.write(Put(A, {}))
        with holding(postgres_address, A, is_shared=True):
            assert store.write(Check(A, 1), Put(B, {}, ABSENT)) == (1,)

    def test_a_postgres_batch_gives_up_a_lock_that_is_never_free(
        self, postgres_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "WAIT_FOR_LOCK", "50ms")
        store = PostgresRecords(postgres_address)
        with holding(postgres_address, A), pytest.raises(Unavailable, match="too many writers"):
            store.write(Put(A, {}), Put(B, {}))
        assert store.scan("p") == []
        assert store.write(Put(A, {})) == (1,)
        store.close()

    def test_the_postgres_server_ends_a_client_that_stops_in_the_middle_of_a_batch(
        self, store: PostgresRecords, postgres_address: str
    ) -> None:
        with pytest.raises(AnswerLost), holding(postgres_address, A, silent="50ms"):
            assert store.write(Put(A, {}, ABSENT)) == (1,)

    def test_many_postgres_batches_with_common_keys_in_any_order_all_apply(
        self, store: PostgresRecords
    ) -> None:
        """A circle of waiting batches would show as a wait of a second for each."""
        keys = [Key("p", f"{n:03}") for n in range(12)]

        def write(runner: int) -> None:
            for n in range(10):
                turned = keys[(runner + n) % 12 :] + keys[: (runner + n) % 12]
                store.write(*(Put(key, {}) for key in turned[::-1] if runner % 2 or key != keys[n]))

        race(4, write)
        counters = {item.key.sort: item.counter for item in store.scan("p")}
        assert counters == {key.sort: 40 - 2 * (n < 10) for n, key in enumerate(keys)}

    def test_keys_with_the_same_lock_are_written_in_one_postgres_batch(
        self, store: PostgresRecords, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "_lock_number", lambda _: 7)
        store.write(Put(A, {}))
        assert store.write(Check(A, 1), Put(B, {}), Put(C, {})) == (1, 1)
        with pytest.raises(Conflict):
            store.write(Check(A, 2), Delete(B))


@contextmanager
def holding(
    address: str, key: Key, *, is_shared: bool = False, silent: str = "10min"
) -> Iterator[Callable[[], object]]:
    """Another client in the middle of a batch: it holds the lock of the key until it is told to let go."""
    other = Database(address)
    change = Check(key, 1) if is_shared else Put(key, {})
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(database, "SILENT_CLIENT", silent)
            with other.connected():
                pass
        with other.connected() as connection:
            connection.begin(records._locks([change]))
            yield lambda: connection.ask(("rollback", ()))
            connection.ask(("rollback", ()))
    finally:
        other.close()


def sorts(items: list[Item]) -> list[str]:
    return [item.key.sort for item in items]


def values(store: PostgresRecords, *keys: Key) -> list[object]:
    return [item.value if (item := store.get(key)) else None for key in keys]
