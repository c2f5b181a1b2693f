"""Remove old workspaces from the trash, as long as `harness up` runs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from harness.runtime.async_bridge import run_in_new_thread
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.home.account_trash import empty_old
from workspaces.home.layout import Home

AGAIN_S = 3600.0

_LOG = logging.getLogger("harness.sync.trash_emptying")


@dataclass(frozen=True, slots=True)
class TrashEmptying:
    """A background task that removes what was deleted so many days ago. `days` None: nothing ever."""

    home: Home
    days: int | None
    clock: Clock

    async def run(self) -> None:
        while True:
            with suppress(Failure):  # a backup runs, for example: the next pass tries again
                await run_in_new_thread(self.empty)
            await asyncio.sleep(AGAIN_S)

    def empty(self) -> None:
        """Remove what is due."""
        if self.days is None:
            return
        for trashed in empty_old(self.home, self.clock.now() - timedelta(days=self.days)):
            _LOG.info("removed %s from the trash for good", trashed.name)
