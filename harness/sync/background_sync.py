"""Sync all shared workspaces of a home for as long as a server runs.

A full pass runs once a minute. It finds the changes of other machines and every change that a watcher
missed. Between passes, a file that is marked as changed (`mark`) is pushed on its own. The push waits a
moment first, because one save of an editor causes several events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.json_log import event
from harness.sync.local_copies import LocalCopies
from workspaces.errors import Failure
from workspaces.ids import WorkspaceId
from workspaces.paths import WorkspacePath
from workspaces.sync.engine import Sync
from workspaces.sync.report import SyncReport
from workspaces.workspace.watch import Saved, WatchEvent

EVERY_S = 60.0
"""Seconds between two full passes."""
SETTLE_S = 0.3
"""Seconds without a further event after which an edit counts as complete."""

_LOG = logging.getLogger("harness.sync.background_sync")


class BackgroundSync:
    """The background task that syncs. Any thread may call `mark`; `run` runs until it is cancelled."""

    def __init__(
        self,
        copies: Callable[[], list[LocalCopies]],
        *,
        follow: Callable[[], object] = lambda: None,
        every_s: float = EVERY_S,
    ) -> None:
        """Create the task.

        `copies` returns the local copies of every account that this server serves. `follow` syncs the
        records of those accounts; it is called before their files are synced.
        """
        self._follow = follow
        self._copies = copies
        self._every_s = every_s
        self._dirty: dict[WorkspaceId, set[WorkspacePath]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()

    def mark(self, workspace_id: WorkspaceId, path: WorkspacePath) -> None:
        """Mark a file of this machine as changed, so that it is pushed soon."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._note, workspace_id, path)

    def hear(self, watch_event: WatchEvent) -> None:
        """Mark the files of a new revision, so that what the watcher committed is pushed at once."""
        if isinstance(watch_event, Saved) and watch_event.workspace.record.is_shared:
            for path in watch_event.revision.paths:
                self.mark(watch_event.workspace.record.id, WorkspacePath(path))

    async def run(self) -> None:
        """Sync until the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                await run_in_new_thread(self._sync_all)
                end = self._loop.time() + self._every_s
                while (left := end - self._loop.time()) > 0:
                    await self._push_marked(left)
        finally:
            self._loop = None

    async def _push_marked(self, within_s: float) -> None:
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
                    self._run(copies, record.id, record.name, lambda sync: sync.run())

    def _push(self, workspace_id: WorkspaceId, paths: set[WorkspacePath]) -> None:
        for copies in self._copies():
            if any(record.id == workspace_id for record in copies.workspaces.list(private=True)):
                self._run(copies, workspace_id, workspace_id, lambda sync: sync.push(paths))

    def _run(
        self,
        copies: LocalCopies,
        workspace_id: WorkspaceId,
        name: str,
        part: Callable[[Sync], SyncReport],
    ) -> None:
        """Run this part of a workspace's sync and log its failure. The next pass tries again.

        A workspace that cannot be opened stops no other.
        """
        try:
            report = part(copies.workspaces.sync(workspace_id))
        except Failure as failure:
            _LOG.warning("%s was not synced: %s", name, failure)
            return
        event(_LOG, "synced", level=logging.DEBUG, conflicts=len(report.conflicts))
        if report.conflicts and copies.conflict_found is not None:
            copies.conflict_found(workspace_id, len(report.conflicts))
