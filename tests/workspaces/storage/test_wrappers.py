"""The wrappers of both ports: read-only, logged, retrying, faulty; each passes the conformance tests."""

from __future__ import annotations

import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.blob_store import BlobStoreConformance
from tests.conformance.race import race
from tests.conformance.record_store import RecordStoreConformance
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.storage.blobs import Blob, BlobStore, Stat
from workspaces.storage.faulty import FaultyBlobs, FaultyRecords, StoreFault, seeded
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.storage.logged import LoggedBlobs, LoggedRecords
from workspaces.storage.read_only import ReadOnlyBlobs, ReadOnlyRecords
from workspaces.storage.records import Check, Delete, Item, Key, Put
from workspaces.storage.retrying import Retries, RetryingBlobs, RetryingRecords

A, B, C = Key("p", "a"), Key("p", "b"), Key("p", "c")
BEFORE, AFTER, NONE = StoreFault.BEFORE, StoreFault.AFTER, StoreFault.NONE
STUBBORN = Retries(tries_max=50)
LOG = logging.getLogger("test.stores")


def no_pause(_: float) -> None:
    pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestRetryingBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> RetryingBlobs:
        return RetryingBlobs(MemoryBlobs())


class TestLoggedBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> LoggedBlobs:
        return LoggedBlobs(MemoryBlobs(), "memory", LOG)


class TestFaultlessBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> FaultyBlobs:
        return FaultyBlobs(MemoryBlobs(), iter(()))


class ReadThrough:
    """Writes to a store and looks at it through its read-only wrapper."""

    def __init__(self, store: MemoryBlobs) -> None:
        self.read = ReadOnlyBlobs(store).read
        self.read_if_changed = ReadOnlyBlobs(store).read_if_changed
        self.scan = ReadOnlyBlobs(store).scan
        self.write = store.write
        self.delete = store.delete


class TestReadOnlyBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> ReadThrough:
        return ReadThrough(MemoryBlobs())


class TestRetryingRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> RetryingRecords:
        return RetryingRecords(MemoryRecords(clock))


class PutPlainlyReadBadly:
    """Only reads meet faults: after a fault a true conflict may no longer be recognised as one."""

    def __init__(self, store: MemoryRecords) -> None:
        faulty = FaultyRecords(store, seeded(7, before=0.2, after=0.2), "of seed 7")
        patient = RetryingRecords(faulty, STUBBORN, sleep=no_pause)
        self.get, self.scan, self.close = patient.get, patient.scan, patient.close
        self.write = RetryingRecords(store).write


class TestRetryingRecordsWithBadReads(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> PutPlainlyReadBadly:
        return PutPlainlyReadBadly(MemoryRecords(clock))


class TestLoggedRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> LoggedRecords:
        return LoggedRecords(MemoryRecords(clock), "memory", LOG)


class TestFaultlessRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> FaultyRecords:
        return FaultyRecords(MemoryRecords(clock), iter(()))


class LookedAt:
    def __init__(self, store: MemoryRecords) -> None:
        self.get = ReadOnlyRecords(store).get
        self.scan = ReadOnlyRecords(store).scan
        self.close = ReadOnlyRecords(store).close
        self.write = store.write


class TestReadOnlyRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> LookedAt:
        return LookedAt(MemoryRecords(clock))


class TestReadOnly:
    def test_a_read_only_blob_store_refuses_every_write(self) -> None:
        inner = MemoryBlobs()
        token = inner.write("a.md", b"one", expect=ANY)
        store = ReadOnlyBlobs(inner)
        for expect in (token, ABSENT, ANY):
            with pytest.raises(Refused, match="reading only"):
                store.write("a.md", b"two", expect=expect)
            with pytest.raises(Refused, match="reading only"):
                store.delete("a.md", expect=expect)
        assert inner.read("a.md").data == b"one"

    def test_a_read_only_record_store_refuses_every_write(self) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {"n": 1}))
        for change in (Put(A, {}), Delete(A), Check(A, 1)):
            with pytest.raises(Refused, match="reading only"):
                ReadOnlyRecords(inner).write(change)
        assert value(inner, A) == {"n": 1}


class TestLogged:
    def test_a_log_line_of_blobs_has_call_size_and_duration_but_no_contents(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, LOG.name)
        store = LoggedBlobs(Slow(MemoryBlobs(), clock), "files", LOG, clock=clock)
        store.write("a.md", b"the secret", expect=ANY)
        store.read("a.md")
        list(store.scan("a"))
        with pytest.raises(NotFound):
            store.read("missing.md")
        lines = [json.loads(line) for line in caplog.messages]
        assert [(line["call"], line["ms"], line["outcome"]) for line in lines] == [
            ("write", 0, "ok"),
            ("read", 250, "ok"),
            ("scan", 0, "ok"),
            ("read", 250, "not_found"),
        ]
        assert [line.get("bytes") for line in lines] == [10, 10, None, None]
        assert lines[2]["found"] == 1
        assert "secret" not in caplog.text

    def test_a_log_line_of_records_has_keys_but_no_values(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, LOG.name)
        store = LoggedRecords(MemoryRecords(), "state", LOG)
        store.write(Put(A, {"text": "the secret"}), Delete(B))
        store.get(A)
        store.scan("p")
        store.close()
        lines = [json.loads(line) for line in caplog.messages]
        assert [line["call"] for line in lines] == ["write", "get", "scan", "close"]
        assert lines[0]["changes"] == ["Put p / a", "Delete p / b"]
        assert "secret" not in caplog.text

    def test_an_unavailable_store_is_logged_as_a_warning(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, LOG.name)
        store = LoggedRecords(FaultyRecords(MemoryRecords(), iter([BEFORE])), "state", LOG)
        with pytest.raises(Unavailable):
            store.get(A)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "planned fault" in caplog.messages[0]

    def test_an_abandoned_scan_is_logged_as_left(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, LOG.name)
        store = LoggedBlobs(MemoryBlobs(), "files", LOG)
        for name in "abc":
            store.write(name, b"", expect=ANY)
        scan = store.scan()
        next(scan)
        scan.close()
        assert json.loads(caplog.messages[-1])["outcome"] == "left"


class TestPatience:
    def test_retries_have_growing_jittered_pauses_and_end(self) -> None:
        pauses: list[float] = []
        store = RetryingBlobs(FaultyBlobs(MemoryBlobs(), endless(BEFORE)), sleep=pauses.append)
        with pytest.raises(Unavailable, match="before the effect"):
            store.read("a.md")
        assert len(pauses) == Retries().tries_max - 1
        assert all(p <= 0.05 * 2**n for n, p in enumerate(pauses))

    def test_retries_end_at_the_time_limit(self, clock: ManualClock) -> None:
        tries = itertools.count()
        slow = Slow(FaultyBlobs(MemoryBlobs(), endless(BEFORE)), clock, seconds=20, calls=tries)
        store = RetryingBlobs(slow, STUBBORN, clock=clock, sleep=no_pause)
        with pytest.raises(Unavailable):
            store.read("a.md")
        assert next(tries) == 2

    @pytest.mark.parametrize("error", [NotFound, Conflict, Refused])
    def test_retries_do_not_repeat_errors_that_are_no_outage(self, error: type[Exception]) -> None:
        pauses: list[float] = []
        store = RetryingBlobs(MemoryBlobs(), sleep=pauses.append)
        store.write("a.md", b"", expect=ANY)
        calls: dict[type[Exception], Callable[[], object]] = {
            NotFound: lambda: store.read("b.md"),
            Conflict: lambda: store.write("a.md", b"x", expect=ABSENT),
            Refused: lambda: store.read("/etc"),
        }
        with pytest.raises(error):
            calls[error]()
        assert pauses == []


class TestLostAnswersOfBlobs:
    @pytest.mark.parametrize("fault", [BEFORE, AFTER])
    def test_a_retried_conditional_blob_write_is_applied_once(self, fault: StoreFault) -> None:
        inner = MemoryBlobs()
        store = retrying(inner, fault)
        first = store.write("a.md", b"one", expect=ABSENT)
        assert first == inner.read("a.md").token
        store = retrying(inner, fault)
        second = store.write("a.md", b"two", expect=first)
        assert (inner.read("a.md").data, inner.read("a.md").token) == (b"two", second)
        retrying(inner, fault).delete("a.md", expect=second)
        assert list(inner.scan()) == []

    @pytest.mark.parametrize("fault", [BEFORE, AFTER])
    def test_a_retried_blob_write_still_reports_a_real_conflict(self, fault: StoreFault) -> None:
        inner = MemoryBlobs()
        stale = inner.write("a.md", b"one", expect=ABSENT)
        inner.write("a.md", b"two", expect=ANY)
        with pytest.raises(Conflict):
            retrying(inner, fault).write("a.md", b"three", expect=stale)
        with pytest.raises(Conflict):
            retrying(inner, fault).delete("a.md", expect=stale)
        assert inner.read("a.md").data == b"two"

    def test_a_retried_scan_continues_where_the_fault_occurred(self) -> None:
        inner = MemoryBlobs()
        names = [f"{n:02}.md" for n in range(30)]
        for name in names:
            inner.write(name, b"", expect=ANY)
        for seed in range(20):
            plan = seeded(seed, before=0.02, after=0.02)
            store = RetryingBlobs(
                FaultyBlobs(inner, plan, f"of seed {seed}"), STUBBORN, sleep=no_pause
            )
            assert [stat.name for stat in store.scan()] == names, seed


class TestLostAnswersOfRecords:
    @pytest.mark.parametrize("fault", [BEFORE, AFTER])
    def test_a_retried_record_batch_is_applied_once(self, fault: StoreFault) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {"holder": "me"}))
        inner.write(Put(C, {}))
        store = retrying_records(inner, fault)
        assert store.write(Check(A, 1), Put(B, {"text": "…"}, ABSENT), Delete(C)) == (1,)
        store = retrying_records(inner, fault)
        assert store.write(Check(A, 1), Put(B, {"text": "!"}, 1)) == (2,)
        assert (value(inner, B), inner.get(C)) == ({"text": "!"}, None)

    @pytest.mark.parametrize("fault", [BEFORE, AFTER])
    def test_a_retried_record_write_still_reports_a_real_conflict(self, fault: StoreFault) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {"by": "other"}))
        with pytest.raises(Conflict):
            retrying_records(inner, fault).write(Put(A, {"by": "me"}, ABSENT))
        inner.write(Put(B, {}))
        with pytest.raises(Conflict):
            retrying_records(inner, fault).write(Check(A, 7), Put(B, {"n": 1}, 1))
        with pytest.raises(Conflict):
            retrying_records(inner, fault).write(Check(A, 7), Delete(B, 1))
        assert (value(inner, A), value(inner, B)) == ({"by": "other"}, {})

    def test_a_retried_put_followed_by_a_foreign_write_is_unknown(self) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {"n": 1}))

        def others(_: float) -> None:
            inner.write(Put(A, {"n": 3}))

        store = RetryingRecords(FaultyRecords(inner, iter([AFTER])), sleep=others)
        with pytest.raises(Unavailable, match="after the effect"):
            store.write(Put(A, {"n": 2}, expect=1))
        assert value(inner, A) == {"n": 3}

    def test_a_conditional_delete_with_a_lost_answer_is_unknown(self) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {}))
        with pytest.raises(Unavailable):
            retrying_records(inner, AFTER).write(Delete(A, expect=1))

    def test_a_batch_without_conditions_is_retried(self) -> None:
        inner = MemoryRecords()
        inner.write(Put(B, {}))
        assert retrying_records(inner, AFTER).write(Put(A, {"n": 1}), Delete(B)) == (2,)
        assert (value(inner, A), inner.get(B)) == ({"n": 1}, None)

    @pytest.mark.parametrize("seed", range(5))
    def test_competing_retried_increments_count_each_acknowledged_increment_once(
        self, seed: int
    ) -> None:
        inner = MemoryRecords()
        inner.write(Put(A, {}))
        plan = seeded(seed, before=0.2, after=0.2)
        store = RetryingRecords(FaultyRecords(inner, plan, f"of {seed}"), STUBBORN, sleep=no_pause)
        acknowledged, unknown = Counter[str](), Counter[str]()

        def increment(index: int) -> None:
            me = str(index)
            for _ in range(40):
                item = store.get(A)
                assert item is not None
                mine = item.value | {me: item.value.get(me, 0) + 1}
                try:
                    store.write(Put(A, mine, expect=item.counter))
                    acknowledged[me] += 1
                except Conflict:
                    pass
                except Unavailable:
                    unknown[me] += 1

        race(4, increment)
        counted = value(inner, A)
        assert counted is not None
        for me in acknowledged:
            assert acknowledged[me] <= counted[me] <= acknowledged[me] + unknown[me], seed

    @settings(max_examples=300, deadline=None)
    @given(
        plan=st.lists(st.sampled_from(StoreFault), max_size=12),
        between=st.lists(st.sampled_from(["nothing", "put", "move guard"]), max_size=6),
        expect=st.sampled_from([ABSENT, 1, 2, 3]),
    )
    def test_a_retried_batch_that_succeeds_was_applied_and_a_conflict_was_not(
        self, plan: list[StoreFault], between: list[str], expect: object
    ) -> None:
        """Whatever others do in the pauses."""
        inner = MemoryRecords()
        inner.write(Put(A, {"guard": True}))
        inner.write(Put(B, {"by": "before"}))
        happened: list[bool] = []

        class Watched(MemoryRecords):
            get, scan = inner.get, inner.scan

            def write(self, *changes: object) -> tuple[int, ...]:
                counters = inner.write(*changes)
                happened.append(True)
                return counters

        moves = iter(between)

        def others(_: float) -> None:
            match next(moves, "nothing"):
                case "put":
                    inner.write(Put(B, {"by": "other"}))
                case "move guard":
                    inner.write(Put(A, {"guard": False}))

        store = RetryingRecords(FaultyRecords(Watched(), iter(plan)), STUBBORN, sleep=others)
        try:
            store.write(Check(A, 1), Put(B, {"by": "me"}, expect=expect))
        except Conflict:
            assert not happened
        except Unavailable:
            pass
        else:
            assert happened == [True]


class TestFaults:
    def test_the_same_seed_gives_the_same_plan_of_faults(self) -> None:
        plans = [list(itertools.islice(seeded(seed), 200)) for seed in (1, 1, 2)]
        assert plans[0] == plans[1] != plans[2]
        assert set(plans[0]) == set(StoreFault)

    def test_a_fault_before_has_no_effect_and_a_fault_after_has_the_effect(self) -> None:
        inner = MemoryBlobs()
        store = FaultyBlobs(inner, iter([BEFORE, AFTER]), "of seed 1")
        for effect in ([], ["a.md"]):
            with pytest.raises(Unavailable, match="of seed 1"):
                store.write("a.md", b"x", expect=ABSENT)
            assert [stat.name for stat in inner.scan()] == effect


class Slow:
    """Reads take their time by the clock that stands still."""

    def __init__(
        self,
        store: BlobStore,
        clock: ManualClock,
        seconds: float = 0.25,
        calls: Iterator[int] | None = None,
    ) -> None:
        self._store, self._clock, self._seconds = store, clock, seconds
        self._calls = calls or itertools.count()
        self.write, self.delete = store.write, store.delete

    def read(self, name: str) -> Blob:
        next(self._calls)
        self._clock.advance(self._seconds)
        return self._store.read(name)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return self._store.scan(prefix)


def endless(fault: StoreFault) -> Iterator[StoreFault]:
    return itertools.repeat(fault)


def retrying(inner: MemoryBlobs, *faults: StoreFault) -> RetryingBlobs:
    return RetryingBlobs(FaultyBlobs(inner, iter(faults)), sleep=no_pause)


def retrying_records(inner: MemoryRecords, *faults: StoreFault) -> RetryingRecords:
    return RetryingRecords(FaultyRecords(inner, iter(faults)), sleep=no_pause)


def value(store: MemoryRecords, key: Key) -> dict[str, Any] | None:
    item: Item | None = store.get(key)
    return item.value if item else None
