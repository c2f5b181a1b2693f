"""Leases as a random state machine: holders pause, lose answers and have unrelated clocks.

Two rules hold throughout. Only the newest generation can write. A lease that its holder renewed within
a lease time is not taken over.
"""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.machines import BOUNDED, UNSHRUNK, Flaky
from workspaces.conditions import ABSENT, ANY
from workspaces.coordination.lease import TERMS, Bid, Lease, Leases
from workspaces.errors import Busy, Conflict, LeaseLost, Unavailable
from workspaces.storage.faulty import StoreFault
from workspaces.storage.records import Check, Delete, Item, Key, Put

KEY = "conversation-lease:abc"
FENCE = Key(KEY, "fence")
NAMES = ("red", "green", "blue")
names = st.sampled_from(NAMES)


class Machine(RuleBasedStateMachine):
    leases_as: ClassVar[type[Leases]] = Leases

    def __init__(self) -> None:
        super().__init__()
        self.world = Flaky(*NAMES)
        self.leases = {
            name: self.leases_as(
                self.world.wires[name], self.world.clocks[name], process=f"boot:{name}/1/1"
            )
            for name in NAMES
        }
        self.bids: dict[str, Bid] = {}
        self.held: dict[str, Lease] = {}
        self.now = 0.0
        self.sign: tuple[str, float] | None = None
        """Who holds in truth, and when their last sign of life arrived."""
        self.generations: list[int] = []
        self.written = 0

    @rule(name=names)
    def look(self, name: str) -> None:
        """The first half of an acquisition: whoever does it may sleep before the second."""
        try:
            self.bids[name] = self.leases[name].bid(KEY)
        except (Busy, Unavailable):
            self.bids.pop(name, None)

    @rule(name=names)
    def take(self, name: str) -> None:
        bid = self.bids.pop(name, None)
        if bid is None:
            return
        before = self.generation()
        try:
            self.held[name] = bid.won(self.world.wires[name].write(*bid.changes))
        except Conflict:
            pass
        except Unavailable:
            self.leases[name].lose(bid)
        if self.generation() != before:  # it happened, whether or not the answer came
            if self.sign is not None and self.sign[0] != name:
                holder, at = self.sign
                assert self.now - at >= TERMS.lease_s, f"{name} followed {holder} too early"
            assert self.generation() not in self.generations
            self.generations.append(self.generation())
            self.sign = (name, self.now)

    @rule(name=names)
    def acquire(self, name: str) -> None:
        self.look(name)
        self.take(name)

    @rule(name=names, pause=st.sampled_from([30.0, 61.0]))
    def follow(self, name: str, pause: float) -> None:
        """What somebody does who wants it and has time."""
        self.look(name)
        self.wait(pause)
        self.acquire(name)

    @rule(name=names, holder=names)
    def wake_up_at_the_last_moment(self, name: str, holder: str) -> None:
        self.look(name)
        self.wait(61.0)
        self.look(name)
        self.renew(holder)
        self.take(name)

    @rule(name=names)
    def renew(self, name: str) -> None:
        lease = self.held.get(name)
        if lease is None:
            return
        is_newest = lease.generation == self.generation()
        before = self.beat()
        try:
            self.leases[name].renew(lease)
            assert is_newest
            self.sign = (name, self.now)
        except LeaseLost:
            assert not is_newest
            del self.held[name]
        except Unavailable:
            if is_newest and self.beat() != before:  # the sign has arrived, the answer has not
                self.sign = (name, self.now)

    @rule(name=names)
    def release(self, name: str) -> None:
        lease = self.held.pop(name, None)
        if lease is None:
            return
        before = self.generation()
        with suppress(Unavailable):
            self.leases[name].release(lease)
        if self.generation() != before:
            assert lease.generation == before, "released by someone who is not the holder"
            self.sign = None

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.held.pop(name, None)
        self.bids.pop(name, None)
        self.leases[name] = self.leases_as(
            self.world.wires[name], self.world.clocks[name], process=f"boot:{name}/1/1"
        )

    @rule(name=names)
    def write(self, name: str) -> None:
        lease = self.held.get(name)
        if lease is None:
            return
        entry = Put(Key("log", f"{self.written:06}"), {"by": name}, ABSENT)
        with suppress(Conflict, Unavailable):
            self.world.wires[name].write(lease.guard, entry)
        if self.world.store.get(entry.key) is not None:
            self.written += 1
            assert lease.generation == self.generation(), f"{name} wrote with a stale generation"

    @rule(seconds=st.sampled_from([0.5, 15.0, 20.0, 45.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.world.advance(seconds)

    @rule(name=names, seconds=st.sampled_from([-86_400.0, 3_600.0]))
    def jump(self, name: str, seconds: float) -> None:
        self.world.clocks[name].jump(seconds)

    @rule(
        name=names,
        fault=st.sampled_from([StoreFault.BEFORE, StoreFault.AFTER]),
        after=st.integers(0, 2),
    )
    def fault(self, name: str, fault: StoreFault, after: int) -> None:
        self.world.lose_next(name, fault, after)

    def generation(self) -> int:
        fence = self.world.store.get(FENCE)
        return fence.counter if fence else 0

    def beat(self) -> int:
        pulse = self.world.store.get(Key(KEY, "pulse"))
        return pulse.counter if pulse else 0


def test_leases_exclude_a_second_writer_under_random_pauses_faults_and_clocks() -> None:
    run_state_machine_as_test(Machine, settings=BOUNDED)


class UnfencedLease(Lease):
    @property
    def guard(self) -> Check:
        return Check(FENCE, ANY)


class UnfencedBid(Bid):
    def won(self, counters: object) -> Lease:
        lease = super().won(counters)  # type: ignore[arg-type]
        return UnfencedLease(lease.key, lease.generation, lease.mark)


class WithoutFence(Leases):
    """Its holders write without asking whether they still hold."""

    def bid(self, key: str) -> Bid:
        bid = super().bid(key)
        return UnfencedBid(bid.key, bid.mark, bid.changes)


class Hasty(Leases):
    """Follows on what it saw a while ago, whatever the holder has done since."""

    def _bid(self, key: str, fence: Item | None, *still_silent: Check) -> Bid:
        return super()._bid(key, fence)


class Reusing(Leases):
    """Begins to count anew with each holder."""

    def release(self, lease: Lease) -> None:
        try:
            self._records.write(Delete(FENCE, expect=lease.generation))
        except Conflict:
            return


@pytest.mark.parametrize("mutant", [WithoutFence, Hasty, Reusing])
def test_the_lease_simulation_detects_each_mutant(mutant: type[Leases]) -> None:
    class Mutated(Machine):
        leases_as = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Mutated, settings=UNSHRUNK)
