from __future__ import annotations

import asyncio
import queue
from pathlib import Path

import pytest

from harness import Harness
from harness.watching import Watching
from workspaces.watch import News, Settled

NEWS_S_MAX = 60.0


def test_what_is_saved_while_it_runs_is_settled_until_it_is_cancelled(tmp_path: Path) -> None:
    news: queue.Queue[News] = queue.Queue()

    async def watched(harness: Harness) -> None:
        watching = asyncio.create_task(Watching(harness.rooms, news.put).run())
        journal = harness.workspaces.create("journal")  # known only once it changes
        (journal.root / "MEMORY.md").write_text("# Memory\n\n- by hand\n")
        told = await asyncio.to_thread(news.get, timeout=NEWS_S_MAX)
        assert isinstance(told, Settled)
        assert (told.workspace.record.name, told.revision.author) == ("journal", "owner")
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching

    with Harness.open(tmp_path / "home") as harness:
        asyncio.run(watched(harness))
        assert harness.workspaces.get("journal").log()[0].trailers["Source"] == "edit"


def test_only_what_was_named_is_settled(tmp_path: Path) -> None:
    news: queue.Queue[News] = queue.Queue()

    async def watched(harness: Harness) -> None:
        one, other = (harness.workspaces.create(name) for name in ("one", "other"))
        watching = asyncio.create_task(Watching(harness.rooms, news.put, {one.record.id}).run())
        for workspace in (other, one):
            (workspace.root / "a.md").write_text("a")
        await asyncio.to_thread(news.get, timeout=NEWS_S_MAX)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert other.pending() == ["a.md"]
        assert one.pending() == []

    with Harness.open(tmp_path / "home") as harness:
        asyncio.run(watched(harness))
