"""Signs of life while something runs that others may follow: a turn under its lease, a job under its
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
    """`renew` is called while the body runs. LeaseLost, in the body's place, when others have taken over
    or may soon: the body is cancelled in good time before they can."""
    beat = _Beat(renew, terms, asyncio.current_task())
    task = asyncio.create_task(beat.run())
    try:
        yield
    except asyncio.CancelledError:
        if beat.holder is not None and beat.is_lost:
            beat.holder.uncancel()
            raise LeaseLost(key) from None
        raise
    finally:
        beat.has_ended = True
        async with beat.lock:  # a renewal under way comes to its end first
            task.cancel()


@dataclass(slots=True)
class _Beat:
    renew: Callable[[], None]
    terms: LeaseTimings
    holder: asyncio.Task[object] | None
    is_lost: bool = False
    has_ended: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed, pause = loop.time(), self.terms.renew_s
        while not self.is_lost and not self.has_ended:
            await asyncio.sleep(pause)
            asked = loop.time()
            deadline = renewed + self.terms.lease_s - self.terms.stop_early_s
            async with self.lock:
                try:
                    if asked >= deadline:  # asleep for too long: others may be at it already
                        raise LeaseLost("")
                    async with asyncio.timeout_at(deadline):
                        await run_in_new_thread(self.renew)
                    renewed, pause = asked, self.terms.renew_s
                except (LeaseLost, TimeoutError):
                    self.is_lost = True
                except Failure:  # a store that does not answer may answer the next time
                    pause = self.terms.renew_s / _RETRIES_IN_A_BEAT
        if self.holder is not None and not self.has_ended:
            self.holder.cancel()
