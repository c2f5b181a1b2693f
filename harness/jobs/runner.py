"""The runner of jobs: a background task that runs jobs as they are due, and `drain`, which runs all due jobs
once.

A kind of job is a function from the job to the time when it is due again, or to None when it is done. An
error in it becomes the job's error. This is the one place that decides how.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.jobs.heartbeat import kept_alive
from harness.jobs.job import PAUSES_S, Claimed, Job, Jobs
from harness.runtime.async_bridge import run_in_thread, run_or_undo
from harness.runtime.json_log import event
from workspaces.clock import Clock
from workspaces.errors import Busy, Failure, LeaseLost

POLL_S = 1.0
"""Seconds between two looks for due jobs. A look costs one short scan, and no caller needs a job sooner."""
AT_ONCE_MAX = 4
"""Jobs at once of all kinds that have no share of their own."""
BUSY_PAUSE_S = 20.0
"""Seconds until the next attempt when a resource of the job is in use: about as long as a turn takes."""
AWAY_PAUSE_S = 60.0
"""Seconds until the next attempt when a resource is out of reach: as often as a server runs a full pass."""

RunJob = Callable[[Job], Awaitable[datetime | None]]
OnJob = Callable[[Job, str | None], None]
"""A function that receives every job that has ended, with its error if there was one."""

_log = logging.getLogger("harness.jobs.runner")


@dataclass(frozen=True, slots=True)
class Drained:
    """The numbers of jobs that succeeded and failed."""

    done: int
    failed: int


def unheard(job: Job, error: str | None) -> None:
    """Ignore the end of a job."""
    del job, error


@dataclass(frozen=True, slots=True)
class JobShare:
    """How many jobs of these kinds run at once. However many wait, they keep no other kind waiting."""

    kinds: frozenset[str]
    at_once_max: int = AT_ONCE_MAX


class OutOfReach(Exception):
    """A resource of the job cannot be reached now. The job itself has no fault and is never set aside."""


class TryAgain(Exception):
    """A run failed, and its kind of job has pauses of its own before the next attempts."""

    def __init__(self, reason: str, pauses_s: Sequence[float]) -> None:
        super().__init__(reason)
        self.pauses_s = pauses_s


class JobRunner:
    """The runner of all kinds of jobs of a home."""

    def __init__(
        self,
        jobs: Jobs,
        kinds: Mapping[str, RunJob],
        clock: Clock,
        *,
        shares: Sequence[JobShare] = (),
    ) -> None:
        """`shares` are the kinds with a share of their own. All others have one together."""
        self._own_shares = tuple(shares)
        self._jobs = jobs
        self._kinds = dict(kinds)
        self._names = frozenset(self._kinds)
        self._clock = clock
        self._is_store_away = False
        """True while the store of jobs does not answer, so that this is logged once."""

    def only(self, names: Collection[str]) -> JobRunner:
        """Return a runner for these kinds alone."""
        kinds = {name: kind for name, kind in self._kinds.items() if name in names}
        return JobRunner(self._jobs, kinds, self._clock, shares=self._own_shares)

    async def run(self) -> None:
        """Run due jobs until cancelled. Running jobs are then given back.

        One look serves all kinds: it is the request that a server makes most often while it has no work.
        """
        slots = _Slots(self._own_shares, self._names)
        async with asyncio.TaskGroup() as tasks:
            while True:
                claimed = await self._next(await slots.open_kinds())
                if claimed is None:
                    await slots.freed_within(POLL_S)
                    continue
                task = tasks.create_task(self._run(claimed))
                task.add_done_callback(slots.take(claimed.job.kind))

    async def drain(self, on_job: OnJob = unheard) -> Drained:
        """Run the due jobs one after the other, until every due job was tried."""
        done = failed = 0
        while (claimed := await run_in_thread(self._jobs.claim, self._names)) is not None:
            error = await self._run(claimed)
            on_job(claimed.job, error)
            if error is None:
                done += 1
            else:
                failed += 1
        return Drained(done, failed)

    async def _next(self, names: frozenset[str]) -> Claimed | None:
        try:
            claimed = await run_or_undo(lambda: self._jobs.claim(names), self._give_back)
        except Failure as failure:  # the store does not answer: the next look tries again
            if not self._is_store_away:
                facts = {"code": failure.code, "reason": str(failure)}
                event(_log, "no jobs run", level=logging.WARNING, **facts)
            self._is_store_away = True
            return None
        self._is_store_away = False
        return claimed

    def _give_back(self, claimed: Claimed | None) -> None:
        if claimed is not None:
            self._jobs.later(claimed, self._clock.now())

    async def _run(self, claimed: Claimed) -> str | None:
        """Run a job. Return its error if it failed."""
        running = _RunningJob(claimed, self._jobs)
        try:
            async with kept_alive(running.renew, self._jobs.terms, f"job {claimed.job.id}"):
                due = await self._kinds[claimed.job.kind](claimed.job)
        except (Busy, LeaseLost) as failure:
            return await self._put_off(running, BUSY_PAUSE_S, str(failure))
        except OutOfReach as failure:
            return await self._put_off(running, AWAY_PAUSE_S, str(failure))
        except asyncio.CancelledError:
            await self._store_end(lambda: self._give_back(running.claimed))
            raise
        except Exception as problem:  # noqa: BLE001 - every error becomes the job's error
            is_expected = isinstance(problem, (Failure, TryAgain))
            pauses_s = problem.pauses_s if isinstance(problem, TryAgain) else PAUSES_S
            error = str(problem) if is_expected else f"{type(problem).__name__}: {problem}"
            about = {"id": claimed.job.id, "kind": claimed.job.kind}
            event(_log, "job failed", level=logging.WARNING, **about, error=problem)
            await self._store_end(lambda: self._jobs.failed(running.claimed, error, pauses_s))
            return error
        if due is None:
            await self._store_end(lambda: self._jobs.done(running.claimed))
        else:  # missed ticks collapse into one
            again = max(due, self._clock.now())
            await self._store_end(lambda: self._jobs.again(running.claimed, again))
        return None

    async def _store_end(self, end: Callable[[], None]) -> None:
        """Store the end of a job. If the store does not answer, the claim stays until it times out."""
        with suppress(Failure):
            await run_in_thread(end)

    async def _put_off(self, running: _RunningJob, seconds: float, reason: str) -> str:
        due = self._clock.now() + timedelta(seconds=seconds)
        await self._store_end(lambda: self._jobs.later(running.claimed, due, reason))
        return reason


class _Slots:
    """The places of running jobs, by share."""

    def __init__(self, own: Sequence[JobShare], names: frozenset[str]) -> None:
        rest = names.difference(*(share.kinds for share in own))
        self._free = {share: share.at_once_max for share in (*own, JobShare(rest))}
        self._share_of = {kind: share for share in self._free for kind in share.kinds}
        self._names = names
        self._freed = asyncio.Event()
        """Set when a share that was full has a place again."""

    async def open_kinds(self) -> frozenset[str]:
        """Return the kinds that have a free place. Waits until there is one."""
        while True:
            self._freed.clear()
            names = {kind for share, free in self._free.items() if free for kind in share.kinds}
            if found := self._names & names:
                return found
            await self._freed.wait()

    async def freed_within(self, seconds: float) -> None:
        """Return when a share that was full has a place again, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.wait()

    def take(self, kind: str) -> Callable[[object], None]:
        """Take a place. Return the function that gives it back."""
        share = self._share_of[kind]
        self._free[share] -= 1

        def give_back(_: object) -> None:
            if self._free[share] == 0:
                self._freed.set()
            self._free[share] += 1

        return give_back


@dataclass(slots=True)
class _RunningJob:
    """The claim of a running job, in its current state: every heartbeat changes its counter."""

    claimed: Claimed
    jobs: Jobs

    def renew(self) -> None:
        self.claimed = self.jobs.renew(self.claimed)
