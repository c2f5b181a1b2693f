"""The retrying blob store, and the faulty stores of the tests; each passes the conformance tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.blob_store import BlobStoreConformance
from tests.conformance.record_store import RecordStoreConformance
from tests.faulty_stores import FaultyBlobs, FaultyRecords, StoreFault, seeded
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict, NotFound, Refused, Unavailable
from workspaces.storage.blobs import Blob, BlobStore, Stat
from workspaces.storage.in_memory import MemoryBlobs, MemoryRecords
from workspaces.storage.retrying import Retries, RetryingBlobs

BEFORE, AFTER, NONE = StoreFault.BEFORE, StoreFault.AFTER, StoreFault.NONE
STUBBORN = Retries(tries_max=50)


def no_pause(_: float) -> None:
    pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestRetryingBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> RetryingBlobs:
        return RetryingBlobs(MemoryBlobs())


class TestFaultlessBlobs(BlobStoreConformance):
    @pytest.fixture
    def store(self) -> FaultyBlobs:
        return FaultyBlobs(MemoryBlobs(), iter(()))


class TestFaultlessRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> FaultyRecords:
        return FaultyRecords(MemoryRecords(clock), iter(()))


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
