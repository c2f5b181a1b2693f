"""Syncing all shared workspaces of a home, for as long as something runs on it.

Once a minute everything is looked at, which finds what other machines wrote and whatever a watcher missed.
In between, what somebody knows to be dirty (`mark`) goes out by itself, once it has been left alone for a
moment: an editor's save is several events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from harness.runtime.async_bridge import run_in_new_thread
from harness.sync.local_copies import LocalCopies
from workspaces.errors import Failure
from workspaces.ids import WorkspaceId
from workspaces.paths import WorkspacePath
from workspaces.workspace.watch import Saved, WatchEvent

EVERY_S = 60.0
SETTLE_S = 0.3
"""As long as an edit is given to be complete."""

_LOG = logging.getLogger("harness.sync.background_sync")


class BackgroundSync:
    """`mark` may be called from any thread; `run` runs until it is cancelled."""

    def __init__(
        self,
        copies: Callable[[], list[LocalCopies]],
        *,
        follow: Callable[[], object] = lambda: None,
        every_s: float = EVERY_S,
    ) -> None:
        """`copies`: of every account that is served here. `follow` brings their records first."""
        self._follow = follow
        self._copies = copies
        self._every_s = every_s
        self._dirty: dict[WorkspaceId, set[WorkspacePath]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def mark(self, workspace_id: WorkspaceId, path: WorkspacePath) -> None:
        """This file has changed here."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._note, workspace_id, path)

    def hear(self, news: WatchEvent) -> None:
        """What the watcher has made a revision of goes out at once."""
        if isinstance(news, Saved) and news.workspace.record.is_shared:
            for path in news.revision.paths:
                self.mark(news.workspace.record.id, WorkspacePath(path))

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                await run_in_new_thread(self._sync_all)
                end = self._loop.time() + self._every_s
                while (left := end - self._loop.time()) > 0:
                    await self._push_what_is_marked(left)
        finally:
            self._loop = None

    async def _push_what_is_marked(self, within_s: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), within_s)
        except TimeoutError:
            return
        await asyncio.sleep(SETTLE_S)
        self._woken.clear()
        dirty, self._dirty = self._dirty, {}
        for workspace_id, paths in dirty.items():
            await run_in_new_thread(self._push, workspace_id, paths)

    def _note(self, workspace_id: WorkspaceId, path: WorkspacePath) -> None:
        self._dirty.setdefault(workspace_id, set()).add(path)
        self._woken.set()

    def _sync_all(self) -> None:
        self._follow()
        for copies in self._copies():
            for record in copies.records():
                if record.is_shared:
                    self._told(
                        record.name, lambda c=copies, r=record: c.workspaces.sync(r.id).run()
                    )

    def _push(self, workspace_id: WorkspaceId, paths: set[WorkspacePath]) -> None:
        for workspaces in (copies.workspaces for copies in self._copies()):
            if any(record.id == workspace_id for record in workspaces.list(private=True)):
                self._told(workspace_id, lambda w=workspaces: w.sync(workspace_id).push(paths))

    def _told(self, name: str, sync: Callable[[], object]) -> None:
        """A store that does not answer now is asked again a minute later; a person reads why."""
        try:
            sync()
        except Failure as failure:
            _LOG.warning("%s was not synced: %s", name, failure)
