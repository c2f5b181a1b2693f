"""Running jobs: the resident that looks after what is due, and the drain that does it once.

What a kind of job does is a function from the job to the moment it is due again, or None when it is
done. What goes wrong in it becomes the job's error: this is the one place where that table is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from harness.jobs.heartbeat import kept_alive
from harness.jobs.job import Claimed, Job, Jobs
from harness.runtime.async_bridge import run_in_thread, run_or_undo
from workspaces.clock import Clock
from workspaces.errors import Busy, Failure, LeaseLost

POLL_S = 1.0
"""A look costs one short scan; nobody waits for a job more closely than this."""
AT_ONCE_MAX = 4
BUSY_PAUSE_S = 20.0
"""When what a job needs is in use: about as long as a turn takes."""
AWAY_PAUSE_S = 60.0
"""When what a job needs cannot be reached: as often as a server looks at everything."""

Run = Callable[[Job], Awaitable[datetime | None]]
OnJob = Callable[[Job, str | None], None]
"""Hears of every job that has ended, and its error, if there was one."""


@dataclass(frozen=True, slots=True)
class Drained:
    done: int
    failed: int


def unheard(job: Job, error: str | None) -> None:
    del job, error


class OutOfReach(Exception):
    """What a job needs cannot be reached now. Nothing is wrong with the job: it is never set aside."""


class JobRunner:
    def __init__(self, jobs: Jobs, kinds: Mapping[str, Run], clock: Clock) -> None:
        self._jobs = jobs
        self._kinds = dict(kinds)
        self._names = frozenset(self._kinds)
        self._clock = clock

    async def run(self) -> None:
        """Look after jobs until cancelled; what is under way then is given back."""
        places = asyncio.Semaphore(AT_ONCE_MAX)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await places.acquire()
                claimed = await self._next()
                if claimed is None:
                    places.release()
                    await asyncio.sleep(POLL_S)
                    continue
                task = tasks.create_task(self._run(claimed))
                task.add_done_callback(lambda _: places.release())

    async def drain(self, told: OnJob = unheard) -> Drained:
        """Run what is due, one after the other, until nothing is that was not tried."""
        done = failed = 0
        while (claimed := await run_in_thread(self._jobs.claim, self._names)) is not None:
            error = await self._run(claimed)
            told(claimed.job, error)
            if error is None:
                done += 1
            else:
                failed += 1
        return Drained(done, failed)

    async def _next(self) -> Claimed | None:
        try:
            return await run_or_undo(lambda: self._jobs.claim(self._names), self._given_back)
        except Failure:  # a store that does not answer may answer the next time
            return None

    def _given_back(self, claimed: Claimed | None) -> None:
        if claimed is not None:
            self._jobs.later(claimed, self._clock.now())

    async def _run(self, claimed: Claimed) -> str | None:
        """The error, if it failed."""
        held = _Held(claimed, self._jobs)
        try:
            async with kept_alive(held.renew, self._jobs.terms, f"job {claimed.job.id}"):
                due = await self._kinds[claimed.job.kind](claimed.job)
        except (Busy, LeaseLost) as others:
            return await self._put_off(held, BUSY_PAUSE_S, str(others))
        except OutOfReach as away:
            return await self._put_off(held, AWAY_PAUSE_S, str(away))
        except asyncio.CancelledError:
            await self._ended(lambda: self._given_back(held.claimed))
            raise
        except Exception as problem:  # noqa: BLE001 - the table of this edge
            known = isinstance(problem, Failure)
            error = str(problem) if known else f"{type(problem).__name__}: {problem}"
            await self._ended(lambda: self._jobs.failed(held.claimed, error))
            return error
        if due is None:
            await self._ended(lambda: self._jobs.done(held.claimed))
        else:  # ticks that were missed collapse into one
            again = max(due, self._clock.now())
            await self._ended(lambda: self._jobs.again(held.claimed, again))
        return None

    async def _ended(self, end: Callable[[], None]) -> None:
        """A store that does not answer now leaves the claim, which silence will free."""
        with suppress(Failure):
            await run_in_thread(end)

    async def _put_off(self, held: _Held, seconds: float, why: str) -> str:
        due = self._clock.now() + timedelta(seconds=seconds)
        await self._ended(lambda: self._jobs.later(held.claimed, due, why))
        return why


@dataclass(slots=True)
class _Held:
    """The claim as it stands now: every sign of life moves its counter."""

    claimed: Claimed
    jobs: Jobs

    def renew(self) -> None:
        self.claimed = self.jobs.renew(self.claimed)
