"""Heartbeats while work runs that other processes may take over: a turn under its lease, a job under its
claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from harness.runtime.async_bridge import run_in_new_thread
from workspaces.coordination.lease import LeaseTimings
from workspaces.errors import Failure, LeaseLost

_RETRIES_IN_A_BEAT = 4


@asynccontextmanager
async def kept_alive(
    renew: Callable[[], None], terms: LeaseTimings, key: str
) -> AsyncGenerator[None]:
    """Call `renew` regularly while the body runs.

    Raises: LeaseLost, in place of the body's cancellation, when another process has taken over or soon may.
    The body is cancelled in good time before another process can take over.
    """
    heartbeat = _Heartbeat(renew, terms, asyncio.current_task())
    task = asyncio.create_task(heartbeat.run())
    try:
        yield
    except asyncio.CancelledError:
        if heartbeat.body is not None and heartbeat.is_lost:
            heartbeat.body.uncancel()
            raise LeaseLost(key) from None
        raise
    finally:
        heartbeat.has_ended = True
        async with heartbeat.lock:  # a running renewal ends first
            task.cancel()


@dataclass(slots=True)
class _Heartbeat:
    """The task that renews, and cancels the body when it cannot."""

    renew: Callable[[], None]
    terms: LeaseTimings
    body: asyncio.Task[object] | None
    is_lost: bool = False
    has_ended: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed, pause = loop.time(), self.terms.renew_s
        while not self.is_lost and not self.has_ended:
            await asyncio.sleep(pause)
            started = loop.time()
            deadline = renewed + self.terms.lease_s - self.terms.stop_early_s
            async with self.lock:
                try:
                    if started >= deadline:
                        # this process slept too long: another one may have taken over
                        raise LeaseLost("")
                    async with asyncio.timeout_at(deadline):
                        await run_in_new_thread(self.renew)
                    renewed, pause = started, self.terms.renew_s
                except (LeaseLost, TimeoutError):
                    self.is_lost = True
                except Failure:  # the store does not answer: try again sooner
                    pause = self.terms.renew_s / _RETRIES_IN_A_BEAT
        if self.body is not None and not self.has_ended:
            self.body.cancel()
