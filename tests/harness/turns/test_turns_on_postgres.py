"""Turns of many processes whose records are in PostgreSQL: leases, claims and lines of events under kills."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from tests.harness.talk import Rule, assert_in_order, entries_of, opened, storm
from tests.servers import BUCKET, S3Server
from tests.workspaces.actors import run
from workspaces.ids import new_id

WAIT_S = 300.0
SOAK = bool(os.environ.get("SOAK"))
PROCESSES, EVENTS, CONVERSATIONS = (8, 100, 8) if SOAK else (4, 12, 2)


def test_events_from_processes_that_share_postgres_have_a_single_effect_each_although_some_are_killed(
    tmp_path: Path, postgres_address: str, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARNESS_S3", f"s3://{BUCKET}/{new_id('test')}")
    monkeypatch.setenv("HARNESS_RECORDS", postgres_address)
    home = tmp_path / "home"
    told = json.loads(run(storm, str(home), PROCESSES, EVENTS, CONVERSATIONS, seed, wait_s=WAIT_S))
    print(told)
    rooms = opened(home, Rule())
    events: list[str] = []
    for number in range(CONVERSATIONS):
        events += assert_in_order(rooms, f"c{number}")
        said = [entry.message.text for entry in entries_of(rooms, f"c{number}")]
        assert len(set(said)) == len(said), "something was said twice"
    assert sorted(events) == sorted(f"event-{number}" for number in range(EVENTS))
    rooms.records.close()
