from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from harness.sync.background_watch import BackgroundWatch, all_of
from harness.sync.local_copies import LocalCopies
from workspaces.workspace.watch import Saved, WatchEvent

NEWS_S_MAX = 60.0


def watching_of(harness: Harness, tell: Callable[[WatchEvent], None]) -> BackgroundWatch:
    trees, clock = harness.settings.home.trees, harness.rooms.clock
    return BackgroundWatch(trees, lambda: all_of(LocalCopies(harness.workspaces)), clock, tell)


def test_background_watch_commits_manual_edits_until_cancelled(tmp_path: Path) -> None:
    news: queue.Queue[WatchEvent] = queue.Queue()

    async def watched(harness: Harness) -> None:
        watching = asyncio.create_task(watching_of(harness, news.put).run())
        journal = harness.workspaces.create("journal")  # known only once it changes
        (journal.root / "MEMORY.md").write_text("# Memory\n\n- by hand\n")
        told = await asyncio.to_thread(news.get, timeout=NEWS_S_MAX)
        assert isinstance(told, Saved)
        assert (told.workspace.record.name, told.revision.author) == ("journal", "owner")
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    with Harness.open(tmp_path / "home") as harness:
        asyncio.run(watched(harness))
        assert harness.workspaces.get("journal").log()[0].trailers["Source"] == "edit"
