"""Two machines on one place in memory: real directories and real histories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.replicas import MemoryPrefix, Replica
from workspaces.localfs.staging import LOCK_NAME
from workspaces.paths import WorkspacePath
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.in_memory import MemoryRecords
from workspaces.tree.port import Label

MEMORY = "MEMORY.md"


@pytest.fixture
def prefix() -> MemoryPrefix:
    return MemoryPrefix()


@pytest.fixture
def place(prefix: MemoryPrefix) -> SharedBucket:
    return SharedBucket("memory:", prefix)


@pytest.fixture
def machine(tmp_path: Path, place: SharedBucket) -> Callable[[str], Replica]:
    """By name; asked for again it is a new process on the same home."""
    records = MemoryRecords()
    return lambda name: Replica(tmp_path / name, records, place)


@pytest.fixture
def a(machine: Callable[[str], Replica]) -> Replica:
    return machine("a")


@pytest.fixture
def b(a: Replica, machine: Callable[[str], Replica]) -> Replica:
    return machine("b")


def filled(a: Replica, b: Replica, count: int = 6) -> None:
    for number in range(count):
        a.put(f"{number}.md", f"{number}\n")
    a.sync.run()
    b.sync.run()


def set_status(machine: Replica, value: str) -> None:
    machine.put(MEMORY, f"---\nstatus: {value}\n---\n")


def at_the_next_exchange(
    machine: Replica,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: str | None = None,
    after: str | None = None,
    opened: Callable[[], object] = lambda: None,
) -> None:
    """What a person saves right before the next swap and right after it, and what opens the file between."""
    exchange = machine.workspace._blobs.exchange

    def exchanged(label: Label, path: WorkspacePath) -> None:
        monkeypatch.setattr(machine.workspace._blobs, "exchange", exchange)
        if before is not None:
            machine.put(path, before)
        opened()
        exchange(label, path)
        if after is not None:
            machine.put(path, after)

    monkeypatch.setattr(machine.workspace._blobs, "exchange", exchanged)


def in_staging(of: Replica) -> list[str]:
    staging = of.home.staging(of.workspace.namespace)
    return [one.name for one in staging.iterdir() if one.name != LOCK_NAME]
