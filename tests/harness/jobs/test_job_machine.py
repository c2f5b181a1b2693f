"""Jobs under faults: runners crash, sleep and lose answers while jobs are enqueued again.

A job is never claimed by a second runner while its first one renews in time. No request is lost: a job
starts again after it was last enqueued.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from harness.jobs.job import ATTEMPTS_MAX, DONE_S, Claimed, Job, Jobs
from tests.machines import BOUNDED, UNSHRUNK, Flaky
from workspaces.conditions import ANY
from workspaces.coordination.lease import TERMS
from workspaces.errors import LeaseLost, NotFound, Unavailable
from workspaces.storage.faulty import StoreFault
from workspaces.storage.records import Key, RecordChange

NAMES = ("red", "green", "blue")
KINDS = frozenset({"tick"})
names = st.sampled_from(NAMES)
IDS = ("one", "two")
ids = st.sampled_from(IDS)


class Machine(RuleBasedStateMachine):
    jobs_as: ClassVar[type[Jobs]] = Jobs

    def __init__(self) -> None:
        super().__init__()
        self.world = Flaky(*NAMES, "last")
        for clock in self.world.clocks.values():  # due times are wall-clock times: here all agree
            clock.jump((self.world.true_clock.now() - clock.now()).total_seconds())
        self.jobs = {name: self.started(name) for name in NAMES}
        self.at: dict[str, Claimed] = {}
        self.wanted: dict[str, int] = {}
        """Id → the number of the last wish, which is also its payload."""
        self.begun: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        """Id → the newest wish that somebody was told to be at its end."""
        self.signs: dict[str, tuple[str, float]] = {}
        self.since: dict[str, float] = {}
        """When somebody claimed a job, or renewed its claim."""
        self.now = 0.0

    def started(self, name: str) -> Jobs:
        wire, clock = self.world.wires[name], self.world.clocks[name]
        return self.jobs_as(wire, clock, process=mine(name))

    @rule(name=names, job_id=ids, delay=st.sampled_from([0.0, 10.0, 100.0]))
    def want(self, name: str, job_id: str, delay: float) -> None:
        number = self.wanted.get(job_id, 0) + 1
        due = self.world.true_clock.now() + timedelta(seconds=delay)
        with suppress(Unavailable):
            self.jobs[name].enqueue(Job(job_id, "tick", due, {"n": number}))
        found = self.world.store.get(Key("jobs", job_id))
        if found is not None and found.value["payload"].get("n") == number:
            self.wanted[job_id] = number

    @rule(name=names)
    def claim(self, name: str) -> None:
        if name in self.at:
            return
        before = {job_id: self.claim_of(job_id) for job_id in IDS}
        try:
            claimed = self.jobs[name].claim(KINDS)
        except Unavailable:
            claimed = None
        for job_id in IDS:
            if self.claim_of(job_id) != before[job_id] and self.claim_of(job_id)[1] == mine(name):
                self.followed(name, job_id)
        if claimed is not None:
            self.at[name], self.since[name] = claimed, self.now
            number = claimed.job.payload["n"]
            self.begun[claimed.job.id] = max(self.begun.get(claimed.job.id, 0), number)

    def followed(self, name: str, job_id: str) -> None:
        if job_id in self.signs and self.signs[job_id][0] != name:
            holder, at = self.signs[job_id]
            told = f"{name} joined {holder} at {job_id}"
            assert self.now - at >= TERMS.lease_s, told
        self.signs[job_id] = (name, self.now)

    @rule(name=names)
    def renew(self, name: str) -> None:
        claimed = self.at.get(name)
        if claimed is None:
            return
        before = self.claim_of(claimed.job.id)
        try:
            self.at[name] = self.jobs[name].renew(claimed)
        except LeaseLost:
            del self.at[name]
        except Unavailable:
            del self.at[name]  # whether the sign arrived is not known: the rest is for silence
        if self.claim_of(claimed.job.id) != before:
            self.signs[claimed.job.id] = (name, self.now)
            self.since[name] = self.now

    @rule(name=names, how=st.sampled_from(["done", "again", "later", "failed"]))
    def end(self, name: str, how: str) -> None:
        claimed = self.at.pop(name, None)
        if claimed is None:
            return
        jobs, before = self.jobs[name], self.claim_of(claimed.job.id)
        soon = self.world.true_clock.now() + timedelta(seconds=30)
        with suppress(Unavailable):
            if how == "done":
                jobs.done(claimed)
            elif how == "failed":
                jobs.failed(claimed, "it did not work")
            else:
                getattr(jobs, how)(claimed, soon)
        if self.claim_of(claimed.job.id) != before:
            holder, _ = self.signs.pop(claimed.job.id, (name, 0.0))
            slept_s = self.now - self.since[name]
            # what is done stays for a day: who sleeps longer may find another job in its place
            assert holder == name or slept_s >= DONE_S, f"{name} ended what {holder} is at"

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.at.pop(name, None)
        self.jobs[name] = self.started(name)

    @rule(seconds=st.sampled_from([1.0, 20.0, 61.0, 100_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.world.advance(seconds)

    @rule(name=names)
    def follow(self, name: str) -> None:
        self.claim(name)
        self.wait(61.0)
        self.claim(name)

    @rule(name=names, other=names, job_id=ids)
    def be_overtaken(self, name: str, other: str, job_id: str) -> None:
        """Asleep at a job while somebody else brings it to its end, and it is wanted again."""
        if name == other:
            return
        self.claim(name)
        self.follow(other)
        self.end(other, "done")
        self.want(other, job_id, 0.0)
        self.claim(other)
        self.end(name, "done")

    @rule(name=names, other=names, job_id=ids)
    def end_late(self, name: str, other: str, job_id: str) -> None:
        """Asleep at a job, and back at its end while somebody else is at it."""
        if name == other:
            return
        self.claim(name)
        self.follow(other)
        self.end(name, "done")
        self.want(name, job_id, 0.0)
        self.claim(name)

    @rule(
        name=names,
        fault=st.sampled_from([StoreFault.BEFORE, StoreFault.AFTER]),
        after=st.integers(0, 5),
    )
    def fault(self, name: str, fault: StoreFault, after: int) -> None:
        self.world.lose_next(name, fault, after)

    @rule(name=names, other=names, job_id=ids, after=st.integers(0, 5))
    def want_meanwhile(self, name: str, other: str, job_id: str, after: int) -> None:
        if name != other:
            self.world.meanwhile(name, lambda: self.want(other, job_id, 0.0), after)

    def claim_of(self, job_id: str) -> tuple[int, str | None]:
        item = self.world.store.get(Key("jobs-claims", job_id))
        return (item.counter, item.value["process"]) if item else (0, None)

    def teardown(self) -> None:
        """Everybody else is gone; one more runner does what is left, and a person lets nothing lie."""
        self.world.quiet()
        last = self.jobs["last"] = self.started("last")
        for _ in range(3 * ATTEMPTS_MAX):
            self.now += 4000.0
            self.world.advance(4000.0)
            for one in last.list():
                if one.is_aside:
                    with suppress(NotFound):
                        last.retry(one.job.id)
            while (claimed := last.claim(KINDS)) is not None:
                number = claimed.job.payload["n"]
                self.begun[claimed.job.id] = max(self.begun.get(claimed.job.id, 0), number)
                last.done(claimed)
            if not last.list():
                break
        assert last.list() == []
        assert {job_id: self.begun.get(job_id, 0) for job_id in self.wanted} == self.wanted


def mine(name: str) -> str:
    return f"boot:{name}/1/1"


def test_no_job_is_lost_or_run_by_two_live_runners_despite_every_fault() -> None:
    run_state_machine_as_test(Machine, settings=BOUNDED)


class Deaf(Jobs):
    """Ends a job without asking whether it was wanted again meanwhile."""

    def _finished(self, job: Job, expect: Any) -> tuple[RecordChange, ...]:
        return super()._finished(job, ANY)


class Presumptuous(Jobs):
    """Ends a job without asking whether somebody has taken it over."""

    def _end(self, claimed: Claimed, changes: tuple[RecordChange, ...], **how: Any) -> None:
        item = self._records.get(Key("jobs-claims", claimed.job.id))
        current = item.counter if item else claimed.claim
        super()._end(Claimed(claimed.job, claimed.attempt, claimed.wanted, current), changes, **how)


class Impatient(Jobs):
    """Follows whoever it has seen before."""

    def _is_free(self, claim: Any, looked_at: float) -> bool:
        return super()._is_free(claim, looked_at + TERMS.lease_s)


@pytest.mark.parametrize("mutant", [Deaf, Presumptuous, Impatient])
def test_the_state_machine_detects_a_faulty_job_store(mutant: type[Jobs]) -> None:
    class Mutated(Machine):
        jobs_as = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Mutated, settings=UNSHRUNK)
