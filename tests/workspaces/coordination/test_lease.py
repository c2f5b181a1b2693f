"""Leases: holders, generations, takeover after silence, and the guard that fences writes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from workspaces.clock import ManualClock
from workspaces.coordination.lease import TERMS, Leases, LeaseTimings
from workspaces.errors import Busy, Conflict, LeaseLost
from workspaces.localfs.process import is_dead, this_process
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import Key, Put

KEY = "conversation-lease:abc"
LEASE_S = TERMS.lease_s


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def mine(records: MemoryRecords, clock: ManualClock) -> Leases:
    return Leases(records, clock)


@pytest.fixture
def theirs(records: MemoryRecords, clock: ManualClock) -> Leases:
    """Another process: alive as long as nobody can prove otherwise."""
    return Leases(records, clock)


def test_a_lease_lasts_60_s_renews_every_20_s_and_stops_5_s_early() -> None:
    assert LeaseTimings(lease_s=60.0, renew_s=20.0, stop_early_s=5.0) == TERMS


def test_a_held_lease_is_refused_to_a_second_caller(mine: Leases, theirs: Leases) -> None:
    mine.acquire(KEY)
    with pytest.raises(Busy, match=rf"in use by another operation \(process {os.getpid()}\)"):
        theirs.acquire(KEY)


def test_lease_generations_grow_and_are_never_reused(mine: Leases, theirs: Leases) -> None:
    generations: list[int] = []
    for leases in (mine, theirs, mine):
        lease = leases.acquire(KEY)
        generations.append(lease.generation)
        leases.release(lease)
    assert generations == sorted(set(generations))


def test_a_renewed_lease_is_never_taken_over(
    mine: Leases, theirs: Leases, clock: ManualClock
) -> None:
    lease = mine.acquire(KEY)
    for _ in range(10):
        with pytest.raises(Busy):
            theirs.acquire(KEY)
        clock.advance(LEASE_S - 1)
        mine.renew(lease)


def test_a_lease_is_taken_over_only_after_a_full_lease_time_without_renewal(
    mine: Leases, theirs: Leases, clock: ManualClock
) -> None:
    mine.acquire(KEY)
    clock.advance(LEASE_S * 10)
    with pytest.raises(Busy):  # the first look only starts the watch
        theirs.acquire(KEY)
    clock.advance(LEASE_S - 0.1)
    with pytest.raises(Busy):
        theirs.acquire(KEY)
    clock.advance(0.1)
    assert theirs.acquire(KEY)


def test_a_jump_of_the_wall_clock_does_not_end_a_lease(
    mine: Leases, theirs: Leases, clock: ManualClock
) -> None:
    mine.acquire(KEY)
    with pytest.raises(Busy):
        theirs.acquire(KEY)
    clock.jump(365 * 24 * 3600)
    with pytest.raises(Busy):
        theirs.acquire(KEY)


def test_a_stale_lease_holder_cannot_write(
    mine: Leases, theirs: Leases, records: MemoryRecords, clock: ManualClock
) -> None:
    stale = mine.acquire(KEY)
    mine.check(stale)
    with pytest.raises(Busy):
        theirs.acquire(KEY)
    clock.advance(LEASE_S)
    fresh = theirs.acquire(KEY)
    with pytest.raises(LeaseLost):
        mine.check(stale)
    with pytest.raises(Conflict):
        records.write(stale.guard, Put(Key("log", "1"), {"by": "stale"}))
    with pytest.raises(LeaseLost):
        mine.renew(stale)
    mine.release(stale)
    records.write(fresh.guard, Put(Key("log", "1"), {"by": "fresh"}))


def test_a_lease_released_with_the_last_write_needs_no_further_write(
    mine: Leases, theirs: Leases, records: MemoryRecords
) -> None:
    lease = mine.acquire("c")
    records.write(mine.releasing(lease), Put(Key("p", "last"), {}))
    mine.let_go(lease)
    mine.renew(lease)  # no sign of life is asked of it
    later = theirs.acquire("c")
    mine.release(lease)
    assert not mine.has_let_go(lease)
    theirs.renew(later)


def test_renewing_a_lease_does_not_invalidate_its_guard(
    mine: Leases, records: MemoryRecords
) -> None:
    lease = mine.acquire(KEY)
    mine.renew(lease)
    records.write(lease.guard, Put(Key("log", "1"), {}))


def test_the_lease_of_a_dead_process_of_this_machine_is_taken_over_at_once(
    records: MemoryRecords, mine: Leases
) -> None:
    code = "from workspaces.localfs.process import this_process; print(this_process())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    dead = ended.stdout.strip()
    assert is_dead(dead)
    assert not is_dead(this_process())
    records.write(Put(Key(KEY, "fence"), {"holder": dead}))
    assert mine.acquire(KEY)


@pytest.mark.parametrize("process", ["", "x", "a/b/c", "other-boot:pid:[1]/1/1", "//"])
def test_a_process_that_cannot_be_checked_is_not_judged_dead(process: str) -> None:
    assert not is_dead(process)


def test_a_single_caller_of_many_at_the_same_instant_gets_the_lease(
    records: MemoryRecords, clock: ManualClock
) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def run(number: int) -> None:
        leases = Leases(records, clock)
        barrier.wait(timeout=30)
        try:
            leases.acquire(KEY)
        except Busy:
            return
        won.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(won) == 1
