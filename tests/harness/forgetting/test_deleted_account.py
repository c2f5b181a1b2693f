"""Forgettings of an account whose machines share a bucket."""

from __future__ import annotations

from pathlib import Path

from harness.forgetting.selection import ForgettingRequest
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock

SECRET = "the heron nests in Galway"


def test_a_deleted_account_leaves_neither_rules_nor_forgettings(tmp_path: Path) -> None:
    prefix = MemoryPrefix()
    a = Laptop(tmp_path / "a", prefix, ManualClock(), joins=False)
    a.put("notes", "notes/a.md", f"- {SECRET}\n")
    a.sync()
    rooms = a.harness.rooms
    planned = rooms.forgettings.plan(ForgettingRequest(text=SECRET))
    assert rooms.forgettings.run_here(rooms.forgettings.start(planned).id).status == "done"
    a.sync()
    assert [stat.name for stat in prefix.store.scan() if "/forbidden/" in stat.name]
    rooms.deletion.account()
    assert [stat.name for stat in prefix.store.scan() if "/forbidden/" in stat.name] == []
    assert rooms.forgettings.stored.list() == []
    assert rooms.forgettings.rules.entries() == {}
