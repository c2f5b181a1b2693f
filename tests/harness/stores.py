"""The record stores that several processes share, as fixtures that a test runs with one after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb_server import dynamodb, dynamodb_url, make_table
from workspaces.clock import ManualClock
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import RecordStore
from workspaces.storage.sqlite import SqliteRecords

__all__ = ["clock", "dynamodb", "dynamodb_url", "store"]

_TABLES = (f"shared-{number}" for number in itertools.count())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "dynamodb", "postgres"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> Iterator[RecordStore]:
    opened: RecordStore
    if request.param == "memory":
        opened = MemoryRecords(clock)
    elif request.param == "sqlite":
        opened = SqliteRecords(tmp_path / "state.db", clock=clock)
    elif request.param == "postgres":
        from workspaces.storage.postgres.records import PostgresRecords

        opened = PostgresRecords(request.getfixturevalue("postgres_address"), clock=clock)
    else:
        from workspaces.storage.dynamodb.records import DynamoRecords

        table = next(_TABLES)
        make_table(request.getfixturevalue("dynamodb"), table)
        opened = DynamoRecords(table, clock=clock)
    yield opened
    opened.close()
