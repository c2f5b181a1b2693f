"""The watcher of one principal's workspaces, for whoever runs as long as it should: `harness watch`,
`harness up`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator

from harness.crossing import in_thread
from harness.wiring import Rooms
from workspaces.errors import NotFound
from workspaces.ids import WorkspaceId
from workspaces.watch import News, Watch
from workspaces.workspace import Workspace


class Watching:
    def __init__(
        self,
        rooms: Rooms,
        tell: Callable[[News], None],
        only: Collection[WorkspaceId] | None = None,
    ) -> None:
        """`tell` is called from another thread. `only` None: all workspaces, private ones too, and those
        that are made meanwhile."""
        self._rooms = rooms
        self._only = only
        self._watch = Watch(rooms.settings.home.trees, self._workspaces, rooms.clock, tell)

    async def run(self) -> None:
        """Until it is cancelled; a revision that is being made is finished first."""
        watching = asyncio.ensure_future(in_thread(self._watch.run))
        try:
            await asyncio.shield(watching)
        except asyncio.CancelledError:
            self._watch.stop()
            await watching
            raise

    def _workspaces(self) -> Iterator[Workspace]:
        for record in self._rooms.workspaces.list(private=True):
            if self._only is None or record.id in self._only:
                try:
                    yield self._rooms.workspaces.open(record)
                except NotFound:  # deleted since it was listed
                    continue
