"""Fire the schedules of agents: one durable job for each, due at the next tick.

A tick becomes a run whose id follows from the agent and the tick. So a tick leads to one run, however many
processes come to it, and whatever their clocks do. Machines that share a bucket but not their records claim
the tick there first.

- Ticks that were missed collapse into one: only the latest one is fired.
- While a run of the agent is active, the tick is recorded as skipped. So is a tick that could not be claimed
  because S3 did not answer.
- A tick from before the schedule was set is never fired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.jobs.job import Job, Jobs
from harness.runs.run import RunError
from harness.runtime.async_bridge import run_in_new_thread
from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.ids import ID_HEX_DIGITS, AgentId, RunId
from workspaces.storage.records import RecordChange
from workspaces.timestamp import Stamp, moment_of, stamp_of

if TYPE_CHECKING:
    from harness.runs.active_memory import ActiveMemories
    from harness.runs.run_records import RunRecords
    from harness.runs.runs import Runs
    from workspaces.remote.tick_claim import TickClaims

SCHEDULE = "schedule"
"""Kind of the job that fires the schedule of an agent."""

CORRECT_S = 20.0
"""Seconds between two looks for schedules without a job, or with one that is due too late."""


@dataclass(frozen=True, slots=True)
class ScheduleJobs:
    """The jobs of an account's schedules."""

    principal: Principal
    jobs: Jobs
    clock: Clock

    def changed(self, agent: AgentRecord, before: AgentRecord | None) -> Sequence[RecordChange]:
        """Return the changes to write with an agent's record: its job, if the schedule has changed."""
        schedule = agent.config.schedule
        if schedule == (before.config.schedule if before else None):
            return ()
        if schedule is None:
            return self.jobs.unwanted(job_id(agent.id))
        now = self.clock.now()
        due = schedule.next_after(now)
        if due is None:
            return ()
        return self.jobs.wanted(self._job(agent.id, due, since=now))

    def correct(self, agent: AgentRecord) -> None:
        """Enqueue the job anew if it is missing, or due later than the next tick.

        A clock that was ahead for a while leaves a job that is due too late.
        """
        schedule = agent.config.schedule
        if schedule is None:
            return
        now = self.clock.now()
        due, job = schedule.next_after(now), self.jobs.find(job_id(agent.id))
        if due is None or (job is not None and job.due <= due):
            return
        since = now
        if job is not None:
            since = min(now, moment_of(Stamp(job.payload["since"])))
        self.jobs.enqueue(self._job(agent.id, due, since=since))

    def next_tick(self, agent: AgentRecord) -> datetime | None:
        """Return when the agent runs next by its schedule."""
        job = self.jobs.find(job_id(agent.id))
        return None if job is None or agent.config.schedule is None else job.due

    def delete(self, agent_id: AgentId) -> Sequence[RecordChange]:
        """Return the changes that end the job of an agent that is being deleted."""
        return self.jobs.unwanted(job_id(agent_id))

    def _job(self, agent_id: AgentId, due: datetime, *, since: datetime) -> Job:
        payload = {
            "accountId": self.principal.account_id,
            "userId": self.principal.owner.id,
            "agentId": agent_id,
            "since": stamp_of(since),
        }
        return Job(job_id(agent_id), SCHEDULE, due, payload)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The schedules of an account's agents, as one process fires them."""

    agents: AgentCatalog
    runs: Runs
    jobs: ScheduleJobs
    clock: Clock
    machine: str
    ticks: TickClaims | None
    """The claims of ticks in the bucket. None where machines share their records, or nothing."""

    def fire(self, agent_id: str, since: datetime) -> datetime | None:
        """Fire the latest tick after `since`, unless it was fired. Return when the next one is due."""
        try:
            agent = self.agents.get(agent_id)
        except NotFound:  # deleted since
            return None
        schedule = agent.config.schedule
        if schedule is None:
            return None
        now = self.clock.now()
        tick = schedule.latest_until(now)
        if tick is not None and tick > since:
            self._fire(agent, tick)
        return schedule.next_after(now)

    def correct(self) -> None:
        """Make sure that every schedule has its job."""
        for agent in self.agents.list():
            self.jobs.correct(agent)

    def _fire(self, agent: AgentRecord, tick: datetime) -> None:
        """Start the run of a tick, once; or record why the tick was skipped."""
        run = self.runs.new(
            agent, agent.config.default_prompt or "", "schedule", run_id_of(agent.id, tick)
        )
        if self.runs.records.find(run.id) is not None:
            return
        try:
            if self.ticks is not None and not self.ticks.claim(agent.id, tick, self.machine):
                return  # another machine has this tick
        except Unavailable as failure:
            reason = f"the tick could not be claimed: {failure.reason}"
            self.runs.add_skipped(run, RunError("unavailable", reason))
            return
        if not self.runs.add_scheduled(run):
            reason = "another run of the agent was active"
            self.runs.add_skipped(run, RunError("agent_running", reason))


def job_id(agent_id: str) -> str:
    return f"{SCHEDULE}:{agent_id}"


def run_id_of(agent_id: AgentId, tick: datetime) -> RunId:
    """Return the id of the run of a tick. It is the same in every process."""
    digest = sha256(f"{agent_id}\0{stamp_of(tick)}".encode()).hexdigest()
    return RunId(f"run_{digest[:ID_HEX_DIGITS]}")


def delete_runs_of(
    records: RunRecords, memories: ActiveMemories, jobs: ScheduleJobs, agent_id: AgentId
) -> int:
    """Delete the runs, the schedule and the active memory of an agent that is being deleted.

    Return the number of runs.
    """
    memories.delete(agent_id)
    records.records.write(*jobs.delete(agent_id))
    return records.delete_of(agent_id)


@dataclass(frozen=True, slots=True)
class ScheduleCorrection:
    """A background task that makes sure that every schedule of a home has its job."""

    schedulers: Callable[[], Iterable[Scheduler]]

    async def run(self) -> None:
        while True:
            with suppress(Failure):  # the next pass tries again
                await run_in_new_thread(self._correct)
            await asyncio.sleep(CORRECT_S)

    def _correct(self) -> None:
        for scheduler in self.schedulers():
            scheduler.correct()
