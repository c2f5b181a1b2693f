"""The file watcher as a background task, for `harness watch` and `harness up`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import assert_never

from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.json_log import event
from harness.sync.local_copies import LocalCopies
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound
from workspaces.workspace.watch import Saved, Watch, WatchEvent, WatchFailed
from workspaces.workspace.workspace import Workspace

_log = logging.getLogger("harness.sync.background_watch")


class BackgroundWatch:
    """The task that watches all trees and commits each save."""

    def __init__(
        self,
        trees: Path,
        workspaces: Callable[[], Iterable[Workspace]],
        clock: Clock,
        on_event: Callable[[WatchEvent], None],
    ) -> None:
        """Create the task. `on_event` is called from another thread."""
        self._watch = Watch(trees, workspaces, clock, on_event)

    async def run(self) -> None:
        """Watch until the task is cancelled. A revision that is being made is finished first."""
        watching = asyncio.ensure_future(run_in_new_thread(self._watch.run))
        try:
            await asyncio.shield(watching)
        except asyncio.CancelledError:
            self._watch.stop()
            await watching
            raise


def log_watch_event(watch_event: WatchEvent) -> None:
    """Log an event without any text of a person: a subject quotes such text, and a reason may."""
    match watch_event:
        case Saved(workspace, revision):
            event(_log, "settled", workspace=workspace.record.id, revision=revision.id)
        case WatchFailed(workspace, _, remedy):
            about = workspace.record.id if workspace else None
            event(_log, "not watched", level=logging.WARNING, workspace=about, remedy=remedy)
        case _:
            assert_never(watch_event)


def all_of(copies: LocalCopies) -> Iterator[Workspace]:
    """Yield the workspaces that have files on this machine, as they are now.

    A workspace whose files are lost is left out with a warning; the others are watched all the same.
    """
    for record in copies.records():
        try:
            yield copies.workspaces.open(record)
        except NotFound:  # deleted since it was listed
            continue
        except Failure as failure:
            _log.warning("%s is not watched: %s", record.name, failure)
