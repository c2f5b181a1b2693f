"""Background sync of workspaces, against a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.sync.background_sync import BackgroundSync
from harness.sync.local_copies import LocalCopies
from tests.workspaces.replicas import MemoryPrefix, Replica
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.in_memory import MemoryRecords

WAIT_S_MAX = 60.0


@pytest.fixture
def prefix() -> MemoryPrefix:
    return MemoryPrefix()


@pytest.fixture
def machine(tmp_path: Path, prefix: MemoryPrefix) -> Callable[[str], Replica]:
    records, place = MemoryRecords(), SharedBucket("memory:", prefix)
    return lambda name: Replica(tmp_path / name, records, place)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in another thread
            await asyncio.sleep(0.01)


def test_background_sync_runs_at_once_and_then_periodically(
    machine: Callable[[str], Replica],
) -> None:
    a, b = machine("a"), machine("b")
    a.put("MEMORY.md", "one\n")
    a.sync.run()

    async def story() -> None:
        running = asyncio.create_task(
            BackgroundSync(lambda: [LocalCopies(b.workspaces)], every_s=0.05).run()
        )
        await until(lambda: b.texts() == {"MEMORY.md": "one\n"})
        a.put("MEMORY.md", "two\n")
        await asyncio.to_thread(a.sync.run)
        await until(lambda: b.texts() == {"MEMORY.md": "two\n"})
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(story())


def test_a_marked_path_is_pushed_without_listing_the_store(
    machine: Callable[[str], Replica], prefix: MemoryPrefix
) -> None:
    a = machine("a")
    a.put("MEMORY.md", "one\n")
    syncing = BackgroundSync(lambda: [LocalCopies(a.workspaces)])

    async def story() -> None:
        running = asyncio.create_task(syncing.run())
        await until(lambda: "PUT MEMORY.md" in prefix.asked)
        await until(lambda: a.sync._baseline.fact("packs checked") is not None)
        prefix.asked.clear()
        a.put("MEMORY.md", "two\n")
        syncing.mark(a.workspace.record.id, WorkspacePath("MEMORY.md"))
        await until(lambda: bool(prefix.asked))
        running.cancel()

    asyncio.run(story())
    assert prefix.asked == ["PUT MEMORY.md"]


def test_a_failing_store_does_not_end_background_sync(
    machine: Callable[[str], Replica], prefix: MemoryPrefix, caplog: pytest.LogCaptureFixture
) -> None:
    a = machine("a")
    for number in range(4):
        a.put(f"{number}.md", "x\n")
    a.sync.run()
    kept = dict(prefix.store._blobs)
    prefix.store._blobs.clear()

    async def story() -> None:
        running = asyncio.create_task(
            BackgroundSync(lambda: [LocalCopies(a.workspaces)], every_s=0.02).run()
        )
        await until(lambda: "was not synced" in caplog.text)
        prefix.store._blobs.update(kept)
        a.put("4.md", "x\n")
        await until(lambda: any(name.endswith("/4.md") for name in prefix.store._blobs))
        running.cancel()

    asyncio.run(story())
    assert "store is empty" in caplog.text


def test_a_workspace_that_cannot_be_opened_stops_no_other(
    machine: Callable[[str], Replica], prefix: MemoryPrefix, caplog: pytest.LogCaptureFixture
) -> None:
    a = machine("a")
    broken = a.workspaces.create("aaa")
    a.put("MEMORY.md", "one\n")
    names = [record.name for record in LocalCopies(a.workspaces).records()]
    assert names.index("aaa") < names.index("notes")
    broken.root.rename(broken.root.with_suffix(".away"))
    restarted = machine("a").workspaces

    async def story() -> None:
        running = asyncio.create_task(
            BackgroundSync(lambda: [LocalCopies(restarted)], every_s=60).run()
        )
        await until(lambda: running.done() or "PUT MEMORY.md" in prefix.asked)
        assert not running.done()
        running.cancel()

    asyncio.run(story())
    assert "aaa was not synced" in caplog.text
