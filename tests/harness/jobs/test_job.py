from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.jobs.job import ATTEMPTS_MAX, DONE_S, PAUSE_S, Claimed, Job, Jobs
from harness.jobs.runner import BUSY_PAUSE_S, Drained, JobRunner, JobShare, RunJob
from tests.workspaces.actors import start
from workspaces.clock import ManualClock, SystemClock
from workspaces.coordination.lease import TERMS, LeaseTimings
from workspaces.errors import Busy, LeaseLost, NotFound, Unavailable
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import Put, RecordStore
from workspaces.storage.sqlite import SqliteRecords

KINDS = frozenset({"tick"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def jobs(records: MemoryRecords, clock: ManualClock) -> Jobs:
    return Jobs(records, clock)


def tick(clock: ManualClock, seconds: float = 0.0, job_id: str = "a", **payload: Any) -> Job:
    return Job(job_id, "tick", clock.now() + timedelta(seconds=seconds), payload)


def claimed(jobs: Jobs) -> Claimed:
    found = jobs.claim(KINDS)
    assert found is not None
    return found


def test_a_job_is_claimed_when_due_and_not_before(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock, 10))
    clock.advance(9)
    assert jobs.claim(KINDS) is None
    clock.advance(1)
    assert claimed(jobs).job.id == "a"


def test_jobs_are_claimed_in_order_of_their_due_time(jobs: Jobs, clock: ManualClock) -> None:
    for seconds, job_id in ((30, "late"), (10, "early"), (20, "between")):
        jobs.enqueue(tick(clock, seconds, job_id))
    clock.advance(60)
    assert [claimed(jobs).job.id for _ in range(3)] == ["early", "between", "late"]


def test_a_job_is_claimed_by_a_single_runner(
    jobs: Jobs, records: MemoryRecords, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))
    claimed(jobs)
    assert Jobs(records, clock).claim(KINDS) is None


def test_a_runner_does_not_claim_jobs_of_an_unknown_kind(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock))
    assert jobs.claim(frozenset({"another"})) is None
    assert claimed(jobs)


def test_a_job_enqueued_repeatedly_runs_a_single_time(jobs: Jobs, clock: ManualClock) -> None:
    for _ in range(5):
        jobs.enqueue(tick(clock, 10))
        clock.advance(60)
    jobs.done(claimed(jobs))
    assert jobs.claim(KINDS) is None
    assert jobs.list() == []


def test_enqueueing_a_job_again_replaces_its_due_time_and_payload(
    jobs: Jobs, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock, 10))
    jobs.enqueue(tick(clock, 100, n=2))
    clock.advance(50)
    assert jobs.claim(KINDS) is None
    clock.advance(50)
    assert claimed(jobs).job.payload == {"n": 2}


def test_a_job_enqueued_again_within_a_millisecond_is_due_once(
    jobs: Jobs, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))
    jobs.enqueue(tick(clock, 0.0001))
    clock.advance(1)
    jobs.done(claimed(jobs))
    assert jobs.claim(KINDS) is None


def test_a_job_enqueued_while_running_is_run_again(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock, n=1))
    running = claimed(jobs)
    jobs.enqueue(tick(clock, n=2))
    assert jobs.claim(KINDS) is None
    jobs.done(running)
    assert claimed(jobs).job.payload == {"n": 2}


def test_a_job_can_be_scheduled_again_by_its_run(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock))
    jobs.again(claimed(jobs), clock.now() + timedelta(seconds=60))
    assert jobs.claim(KINDS) is None
    clock.advance(60)
    assert claimed(jobs).attempt == 1


def test_a_failed_job_is_retried_after_a_growing_pause(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock))
    for pause in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        jobs.failed(claimed(jobs), "it rains")
        clock.advance(pause - 0.01)
        assert jobs.claim(KINDS) is None
        clock.advance(0.01)
    (listed,) = jobs.list()
    assert (listed.attempts, listed.error, listed.is_aside) == (3, "it rains", False)


def test_a_job_that_failed_too_often_is_set_aside_and_listed(
    jobs: Jobs, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))
    for _ in range(ATTEMPTS_MAX):
        jobs.failed(claimed(jobs), "it rains")
        clock.advance(10_000)
    assert jobs.claim(KINDS) is None
    (listed,) = jobs.list()
    assert (listed.is_aside, listed.error) == (True, "it rains")
    jobs.enqueue(tick(clock))
    assert jobs.claim(KINDS) is None, "wanting it again does not heal it"
    jobs.retry("a")
    assert claimed(jobs).attempt == 1


def test_a_job_set_aside_can_be_removed(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock))
    for _ in range(ATTEMPTS_MAX):
        jobs.failed(claimed(jobs), "it rains")
        clock.advance(10_000)
    jobs.remove("a")
    assert jobs.list() == []
    with pytest.raises(NotFound):
        jobs.retry("a")
    jobs.enqueue(tick(clock))
    assert claimed(jobs).attempt == 1


def test_a_silent_runner_loses_its_job_and_cannot_complete_the_job_later(
    records: MemoryRecords, clock: ManualClock
) -> None:
    here, there = Jobs(records, clock, process="x:1/1"), Jobs(records, clock, process="y:1/1")
    here.enqueue(tick(clock))
    stale = claimed(here)
    assert there.claim(KINDS) is None
    clock.advance(TERMS.lease_s)
    fresh = claimed(there)
    assert fresh.attempt == 2
    with pytest.raises(LeaseLost):
        here.renew(stale)
    here.done(stale)
    assert len(there.list()) == 1
    there.done(fresh)
    assert there.list() == []


def test_a_job_claimed_days_later_is_not_mistaken_for_its_earlier_claim(
    records: MemoryRecords, clock: ManualClock
) -> None:
    one, other, looking = (
        Jobs(records, clock, process=f"boot:{name}/1/1") for name in ("one", "other", "looking")
    )
    one.enqueue(tick(clock))
    first = claimed(one)
    assert looking.claim(KINDS) is None
    one.done(first)
    clock.advance(2 * DONE_S)
    one.enqueue(tick(clock))
    claimed(other)
    assert looking.claim(KINDS) is None


def test_a_job_that_kills_its_runners_is_set_aside(
    records: MemoryRecords, clock: ManualClock
) -> None:
    Jobs(records, clock).enqueue(tick(clock))
    code = "from workspaces.localfs.process import this_process; print(this_process())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    for _ in range(ATTEMPTS_MAX):
        claimed(Jobs(records, clock, process=ended.stdout.strip()))
    last = Jobs(records, clock)
    assert last.claim(KINDS) is None
    (listed,) = last.list()
    assert listed.is_aside
    assert "8 times" in str(listed.error)


def test_a_completed_job_leaves_no_records_after_a_day(
    jobs: Jobs, records: MemoryRecords, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))
    jobs.done(claimed(jobs))
    clock.advance(DONE_S)
    assert [records.scan(p) for p in ("jobs", "jobs-due", "jobs-claims")] == [[], [], []]


# the runner


def drained(jobs: Jobs, clock: ManualClock, run: RunJob) -> tuple[Drained, list[str | None]]:
    told: list[str | None] = []
    runner = JobRunner(jobs, {"tick": run}, clock)
    return asyncio.run(runner.drain(lambda _, error: told.append(error))), told


def test_a_drain_runs_the_due_jobs_and_ends(jobs: Jobs, clock: ManualClock) -> None:
    for job_id in "abc":
        jobs.enqueue(tick(clock, job_id=job_id))
    jobs.enqueue(tick(clock, 60, "later"))
    ran: list[str] = []

    async def run(job: Job) -> datetime | None:
        ran.append(job.id)
        return None

    assert drained(jobs, clock, run)[0] == Drained(3, 0)
    assert ran == ["a", "b", "c"]
    assert [one.job.id for one in jobs.list()] == ["later"]


def test_missed_runs_of_a_periodic_job_collapse_into_a_single_run(
    jobs: Jobs, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))
    missed = timedelta(days=1)
    clock.advance(missed.total_seconds())
    ran: list[datetime] = []

    async def run(job: Job) -> datetime | None:
        ran.append(job.due)
        return job.due + timedelta(seconds=30)

    assert drained(jobs, clock, run)[0] == Drained(2, 0)
    assert ran == [clock.now() - missed, clock.now()]
    (left,) = jobs.list()
    assert left.job.due == clock.now() + timedelta(seconds=30)


def test_an_exception_becomes_the_error_of_its_job(jobs: Jobs, clock: ManualClock) -> None:
    problems: dict[str, Exception] = {"a": Unavailable("the sea", "is rough"), "b": KeyError("x")}
    for job_id in problems:
        jobs.enqueue(tick(clock, job_id=job_id))

    async def run(job: Job) -> datetime | None:
        raise problems[job.id]

    count, told = drained(jobs, clock, run)
    assert count == Drained(0, 2)
    assert told == ["the sea: is rough", "KeyError: 'x'"]
    assert [one.error for one in jobs.list()] == told


def test_a_job_that_finds_its_target_busy_is_retried_without_counting_an_attempt(
    jobs: Jobs, clock: ManualClock
) -> None:
    jobs.enqueue(tick(clock))

    async def run(job: Job) -> datetime | None:
        raise Busy("the tree", holder="a bird")

    drained(jobs, clock, run)
    (listed,) = jobs.list()
    assert (listed.attempts, listed.error) == (0, "the tree is in use by a bird")
    assert listed.job.due == clock.now() + timedelta(seconds=BUSY_PAUSE_S)


def test_a_cancelled_job_runner_gives_back_its_running_job(jobs: Jobs, clock: ManualClock) -> None:
    jobs.enqueue(tick(clock, job_id="quick"))

    async def live() -> None:
        done, stuck = asyncio.Event(), asyncio.Event()

        async def run(job: Job) -> datetime | None:
            if job.id == "quick":
                done.set()
            else:
                stuck.set()
                await asyncio.Event().wait()
            return None

        resident = asyncio.create_task(JobRunner(jobs, {"tick": run}, clock).run())
        async with asyncio.timeout(60):
            await done.wait()
            jobs.enqueue(tick(clock, job_id="endless"))
            await stuck.wait()
        resident.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resident

    asyncio.run(live())
    (listed,) = jobs.list()
    assert (listed.job.id, listed.process, listed.attempts) == ("endless", None, 0)


def test_a_share_of_the_jobs_that_is_full_keeps_no_other_kind_waiting(
    jobs: Jobs, clock: ManualClock
) -> None:
    """Of two long jobs one runs at a time. Meanwhile a quick one runs, and then the other long one."""
    ran: list[str] = []

    async def live() -> None:
        ends, quick, all_ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def run_long(job: Job) -> datetime | None:
            ran.append(job.id)
            if ran == ["long-1", "quick", "long-2"]:
                all_ran.set()
            await ends.wait()
            return None

        async def run_quick(job: Job) -> datetime | None:
            ran.append(job.id)
            quick.set()
            return None

        for job_id, kind in (("long-1", "long"), ("long-2", "long"), ("quick", "quick")):
            jobs.enqueue(Job(job_id, kind, clock.now()))
        kinds = {"long": run_long, "quick": run_quick}
        runner = JobRunner(jobs, kinds, clock, shares=[JobShare(frozenset({"long"}), 1)])
        resident = asyncio.create_task(runner.run())
        async with asyncio.timeout(60):
            await quick.wait()
            assert ran == ["long-1", "quick"]
            ends.set()
            await all_ran.wait()
        resident.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resident

    asyncio.run(live())


class Looked(Jobs):
    """Jobs that note for which kinds a due one was looked for."""

    def __init__(self, records: MemoryRecords, clock: ManualClock) -> None:
        super().__init__(records, clock)
        self.asked: list[frozenset[str]] = []

    def claim(self, kinds: frozenset[str]) -> Claimed | None:
        self.asked.append(kinds)
        return super().claim(kinds)


def test_one_look_of_a_job_runner_serves_all_kinds(
    records: MemoryRecords, clock: ManualClock
) -> None:
    jobs = Looked(records, clock)
    jobs.enqueue(Job("one", "d", clock.now()))

    async def live() -> None:
        has_run = asyncio.Event()

        async def run(job: Job) -> datetime | None:
            del job
            has_run.set()
            return None

        shares = [JobShare(frozenset({"a"}), 1), JobShare(frozenset({"b", "c"}))]
        runner = JobRunner(jobs, dict.fromkeys("abcd", run), clock, shares=shares)
        resident = asyncio.create_task(runner.run())
        async with asyncio.timeout(60):
            await has_run.wait()
        resident.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resident

    asyncio.run(live())
    assert set(jobs.asked) == {frozenset("abcd")}


def test_a_runner_that_cannot_renew_its_claim_stops_the_job(records: MemoryRecords) -> None:
    """Somebody has taken over: whoever is at it is cancelled, and ends nothing."""
    clock = SystemClock()
    jobs = Jobs(records, clock, terms=LeaseTimings(30.0, 0.01, 1.0))
    jobs.enqueue(Job("a", "tick", clock.now()))

    async def run(job: Job) -> datetime | None:
        item = records.scan("jobs-claims")[0]
        records.write(Put(item.key, {**item.value, "process": "y:1/1"}))
        await asyncio.Event().wait()
        return None

    async def bounded() -> Drained:
        async with asyncio.timeout(60):
            return await JobRunner(jobs, {"tick": run}, clock).drain()

    assert asyncio.run(bounded()).failed == 1
    assert jobs.list()[0].process == "y:1/1"


# many processes


def runs(home: str, name: str) -> None:
    """Runs what is due, notes what it ran."""
    records: RecordStore = SqliteRecords(Path(home) / "jobs.db")
    jobs = Jobs(records, SystemClock())
    ran: list[str] = []

    async def run(job: Job) -> datetime | None:
        ran.append(job.id)
        return None

    asyncio.run(JobRunner(jobs, {"tick": run}, SystemClock()).drain())
    records.close()
    print(json.dumps(ran))


def test_each_job_runs_once_among_many_processes(tmp_path: Path) -> None:
    records = SqliteRecords(tmp_path / "jobs.db")
    jobs = Jobs(records, SystemClock())
    wanted = [f"job-{number}" for number in range(60)]
    for job_id in wanted:
        jobs.enqueue(Job(job_id, "tick", SystemClock().now()))
    runners = [start(runs, str(tmp_path), f"r{number}", out=subprocess.PIPE) for number in range(4)]
    ran = [job for one in runners for job in json.loads(one.communicate(timeout=120)[0])]
    assert sorted(ran) == sorted(wanted)
    assert jobs.list() == []
    records.close()


# housekeeping


def test_a_history_that_needs_packing_is_packed_by_a_job(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Harness.open(home) as harness:
        notes = harness.workspaces.get("notes")
        monkeypatch.setattr(type(notes.history), "needs_packing", property(lambda _: True))
    with Harness.open(home) as harness:
        (listed,) = harness.jobs.list()
        assert listed.job.kind == "tidy"
        assert harness.run_jobs() == Drained(1, 0)
        assert harness.jobs.list() == []
        history = home / "history"
        assert list(history.glob("*/objects/pack/*.pack")) != []
