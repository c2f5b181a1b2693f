"""Background tasks that run as long as `harness up` does, such as the watcher.

Each runs in an asyncio task of its own until it is cancelled. A task that crashes, or that ends without being
cancelled, is started again: at once the first time, then after a pause that doubles with each further crash.
A crash is logged, and `/readyz` shows the state. It never stops the other tasks.
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
"""A task that ran for so many seconds starts with the shortest pause again."""

STOP_S_MAX = 10.0
"""The most seconds that a cancelled task may take to clean up."""

_log = logging.getLogger("harness.jobs.background_task")


class BackgroundTask(Protocol):
    """A task that runs in the background."""

    async def run(self) -> None:
        """Run until the task is cancelled."""
        ...


@dataclass(slots=True)
class TaskHealth:
    """The state of a background task."""

    state: Literal["running", "restarting"] = "running"
    crashes: int = 0
    error: str | None = None
    """The type of the error that ended it last."""


class BackgroundTasks:
    """The background tasks of a server, each restarted when it crashes."""

    def __init__(
        self, named_tasks: Mapping[str, BackgroundTask], clock: Clock, *, pause_s: float = PAUSE_S
    ) -> None:
        self.conditions = {name: TaskHealth() for name in named_tasks}
        self._named_tasks = named_tasks
        self._clock = clock
        self._pause_s = pause_s

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None]:
        """Run the tasks while the body runs. At the end cancel all of them and wait for them."""
        tasks = [
            asyncio.create_task(self._keep_alive(name, background_task), name=f"resident {name}")
            for name, background_task in self._named_tasks.items()
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

    async def _keep_alive(self, name: str, background_task: BackgroundTask) -> None:
        condition = self.conditions[name]
        pause_s = 0.0
        while True:
            begun = self._clock.monotonic()
            condition.state = "running"
            crash: Exception | None = None
            try:
                await background_task.run()
            except Exception as error:  # noqa: BLE001 - after any error the task is started again
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
