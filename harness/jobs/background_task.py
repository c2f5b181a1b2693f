"""Residents: what lives as long as `harness up` does, such as the watcher.

Each runs in a task of its own until it is cancelled. One that crashes, or that ends although nobody
asked it to, is started again: at once the first time, then after a pause that doubles while it goes on
crashing. That it is down is logged and shown by `/readyz`; it never takes the others with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.runtime.json_log import event
from workspaces.clock import Clock

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0

STEADY_S = 60.0
"""Whoever has run for so long crashes for the first time again."""

STOP_S_MAX = 10.0
"""How long one may take to leave things in order after it was cancelled."""

_log = logging.getLogger("harness.jobs.background_task")


class BackgroundTask(Protocol):
    async def run(self) -> None:
        """Runs until it is cancelled."""
        ...


@dataclass(slots=True)
class TaskHealth:
    """How a resident is."""

    state: Literal["running", "restarting"] = "running"
    crashes: int = 0
    error: str | None = None
    """The type of what ended it last."""


class BackgroundTasks:
    def __init__(
        self, residents: Mapping[str, BackgroundTask], clock: Clock, *, pause_s: float = PAUSE_S
    ) -> None:
        self.conditions = {name: TaskHealth() for name in residents}
        self._residents = residents
        self._clock = clock
        self._pause_s = pause_s

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        """They run inside; at the end all are cancelled and awaited."""
        tasks = [
            asyncio.create_task(self._keep_alive(name, resident), name=f"resident {name}")
            for name, resident in self._residents.items()
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                _, late = await asyncio.wait(tasks, timeout=STOP_S_MAX)
                for task in late:
                    event(_log, "left behind", level=logging.ERROR, resident=task.get_name())

    async def _keep_alive(self, name: str, resident: BackgroundTask) -> None:
        condition = self.conditions[name]
        pause_s = 0.0
        while True:
            begun = self._clock.monotonic()
            condition.state = "running"
            crash: Exception | None = None
            try:
                await resident.run()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not be the end of it
                crash = error
            if self._clock.monotonic() - begun >= STEADY_S:
                pause_s = 0.0
            condition.state = "restarting"
            condition.crashes += 1
            condition.error = type(crash).__name__ if crash else "it ended"
            facts = {"resident": name, "again_in_s": pause_s, "reason": crash or condition.error}
            event(_log, "resident crashed", level=logging.ERROR, **facts)
            await asyncio.sleep(pause_s)
            pause_s = min(max(self._pause_s, 2 * pause_s), PAUSE_S_MAX)
