"""Records in PostgreSQL: the conformance tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.record_store import RecordStoreConformance
from tests.postgres_server import postgres, postgres_address
from workspaces.clock import ManualClock
from workspaces.storage.postgres.records import PostgresRecords

__all__ = ["postgres", "postgres_address"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(postgres_address: str, clock: ManualClock) -> Iterator[PostgresRecords]:
    store = PostgresRecords(postgres_address, clock=clock)
    yield store
    store.close()


class TestPostgresRecords(RecordStoreConformance):
    @pytest.fixture
    def store(self, store: PostgresRecords) -> PostgresRecords:
        return store
