"""Conformance of the record stores in memory and in SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.record_store import RecordStoreConformance
from workspaces.clock import ManualClock
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.sqlite import SqliteRecords


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestMemoryRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryRecords:
        return MemoryRecords(clock)


class TestSqliteRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, clock: ManualClock, tmp_path: Path) -> Iterator[SqliteRecords]:
        store = SqliteRecords(tmp_path / "state.db", clock=clock)
        yield store
        store.close()
