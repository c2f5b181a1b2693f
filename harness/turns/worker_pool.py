"""Run a server's tasks for events whose senders do not wait for them.

Every event is durably in its queue before the pool takes it. The pool may drop an event, because the pool is
full, shuts down, or dies. The job of the conversation then looks after the event, in this process or another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from harness.conversations.queued_event import QueuedEvent
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.json_log import event
from harness.turns.dispatcher import Dispatcher
from workspaces.errors import Failure

AT_ONCE_MAX = 256
"""Turns at once. Turns mostly wait for a model; more of them would only share the same threads and disk."""

WAITING_MAX = 2_000
"""Events that have a task in this pool; each takes a few kilobytes."""

_log = logging.getLogger("harness.turns.worker_pool")


class WorkerPool:
    """A pool of tasks for one event loop."""

    def __init__(self, *, drain_s: float) -> None:
        """Take `drain_s`, the seconds that running turns may use at shutdown."""
        self._drain_s = drain_s
        self._places = asyncio.Semaphore(AT_ONCE_MAX)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    async def take(self, dispatcher: Dispatcher, accepted: QueuedEvent) -> None:
        """Run this event, unless this pool already runs it or is full."""
        is_full = self._is_closed or len(self._tasks) >= WAITING_MAX
        if accepted.lease is not None and (is_full or self._places.locked()):
            with suppress(Failure):  # the lease expires by itself
                await run_in_thread(dispatcher.leases.release, accepted.lease)
            accepted = replace(accepted, lease=None)
        # Its task is cancelled only when the process ends, so the event itself is not cancelled.
        queued = replace(accepted, is_new=False)
        self.begin(f"event {queued.claim} {queued.number}", lambda: dispatcher.wait(queued))

    def begin(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Start durable work for which nobody waits, unless this pool is full or already does it.

        A job looks after work that the pool drops.
        """
        if self._is_closed or len(self._tasks) >= WAITING_MAX or name in self._tasks:
            return
        task = asyncio.create_task(self._do(work))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Accept events inside the context; at its end, wait `drain_s` for running turns and cancel the
        rest."""
        try:
            yield
        finally:
            self._is_closed = True
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=self._drain_s)
            left = list(self._tasks.values())
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with self._places:
                await work()
        except Failure as failure:  # the job tries again, or the event's status has the reason too
            event(_log, "work not done", code=failure.code)
        except Exception as error:  # noqa: BLE001 - nothing above this task reports errors
            event(_log, "work failed", level=logging.ERROR, error=error)
