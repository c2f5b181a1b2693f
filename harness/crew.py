"""The crew of a server: tasks that answer events whose senders do not wait for them.

Every event is durably in line before it comes here. So whatever the crew leaves, because it is full, is
told to end, or dies, is looked after by the job of the conversation: by this process or another one.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

from harness.crossing import in_thread
from harness.inbox import Accepted
from harness.ingress import Ingress
from harness.log import event
from workspaces.errors import Failure
from workspaces.records import Key

AT_ONCE_MAX = 256
"""Turns mostly wait for a model; more of them would only share the same threads and disk."""

WAITING_MAX = 2_000
"""Events that have a task here; each takes a few kilobytes."""

DRAIN_S = 10.0
"""How long turns may go on when the server ends. What is not done by then is gone on with later."""

_log = logging.getLogger("harness.crew")


class Crew:
    """Of one event loop."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE_MAX)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._is_closed = False

    async def take(self, ingress: Ingress, accepted: Accepted) -> None:
        """See to it that this event is answered, unless somebody here does so already."""
        is_full = self._is_closed or len(self._tasks) >= WAITING_MAX
        if accepted.lease is not None and (is_full or self._places.locked()):
            with suppress(Failure):  # it ends by itself
                await in_thread(ingress.leases.release, accepted.lease)
            accepted = replace(accepted, lease=None)
        if is_full or accepted.claim in self._tasks:
            return
        task = asyncio.create_task(self._answer(ingress, accepted))
        self._tasks[accepted.claim] = task
        task.add_done_callback(lambda _: self._tasks.pop(accepted.claim, None))

    async def close(self) -> None:
        """Take nothing more, and wait for what runs, within a bound."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=DRAIN_S)
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _answer(self, ingress: Ingress, accepted: Accepted) -> None:
        """Nobody cancels it by leaving: to be cancelled is the end of the process, not of the event."""
        kept = replace(accepted, is_new=False)
        try:
            async with self._places:
                await ingress.answer(kept)
        except Failure as failure:  # whoever asks for the event is told
            event(_log, "event failed", code=failure.code)
        except Exception as error:  # noqa: BLE001 - the last table of this edge
            event(_log, "event failed", level=logging.ERROR, error=error)
