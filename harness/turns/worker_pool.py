"""The crew of a server: tasks that answer events whose senders do not wait for them.

Every event is durably in line before it comes here. So whatever the crew leaves, because it is full, is
told to end, or dies, is looked after by the job of the conversation: by this process or another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from harness.conversations.event_queue import QueuedEvent
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.json_log import event
from harness.turns.dispatcher import Dispatcher
from workspaces.errors import Failure
from workspaces.storage.records import Key

AT_ONCE_MAX = 256
"""Turns mostly wait for a model; more of them would only share the same threads and disk."""

WAITING_MAX = 2_000
"""Events that have a task here; each takes a few kilobytes."""

_log = logging.getLogger("harness.turns.worker_pool")


class WorkerPool:
    """Of one event loop."""

    def __init__(self, *, drain_s: float) -> None:
        """`drain_s`: how long turns may go on at the end."""
        self._drain_s = drain_s
        self._places = asyncio.Semaphore(AT_ONCE_MAX)
        self._tasks: dict[tuple[Key, int], asyncio.Task[None]] = {}
        self._is_closed = False

    async def take(self, ingress: Dispatcher, accepted: QueuedEvent) -> None:
        """See to it that this event is answered, unless somebody here does so already."""
        is_full = self._is_closed or len(self._tasks) >= WAITING_MAX
        if accepted.lease is not None and (is_full or self._places.locked()):
            with suppress(Failure):  # it ends by itself
                await run_in_thread(ingress.leases.release, accepted.lease)
            accepted = replace(accepted, lease=None)
        key = (accepted.claim, accepted.number)
        if is_full or key in self._tasks:
            return
        task = asyncio.create_task(self._answer(ingress, accepted))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """At the end it takes nothing more, and what runs is waited for, within a bound."""
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

    async def _answer(self, ingress: Dispatcher, accepted: QueuedEvent) -> None:
        """Nobody cancels it by leaving: to be cancelled is the end of the process, not of the event."""
        kept = replace(accepted, is_new=False)
        try:
            async with self._places:
                await ingress.wait(kept)
        except Failure as failure:  # whoever asks for the event is told
            event(_log, "event failed", code=failure.code)
        except Exception as error:  # noqa: BLE001 - the last table of this edge
            event(_log, "event failed", level=logging.ERROR, error=error)
