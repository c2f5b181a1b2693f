"""Machines that share their records and files: the registry, joining and usage totals."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.billing.ledger import Ledger
from harness.bootstrap.join import join
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from tests.dynamodb_server import REGION, dynamodb, dynamodb_url, make_table
from tests.servers import BUCKET, S3Server
from workspaces.errors import Refused
from workspaces.home.trash import trash_entries
from workspaces.ids import new_id
from workspaces.remote.registry import LiveEntry, Tombstone

__all__ = ["dynamodb", "dynamodb_url"]


@pytest.fixture
def location(dynamodb: str, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, REGION if name.endswith("REGION") else value)
    location, table = f"s3://{BUCKET}/{new_id('test')}", new_id("table")
    make_table(dynamodb, table)
    monkeypatch.setenv("HARNESS_S3", location)
    monkeypatch.setenv("HARNESS_RECORDS", f"dynamodb:{table}")
    return location


def opened(home: Path) -> Harness:
    return Harness.open(home, sandbox=NoSandbox("not in this test"))


def test_a_deletion_reaches_the_registry_and_the_trash_of_every_machine(
    tmp_path: Path, location: str
) -> None:
    with opened(tmp_path / "a") as a, opened(tmp_path / "b") as b:
        assert a.following is not None
        assert b.following is not None
        record = a.workspaces.get("notes").record
        a.following.sync()
        for harness in (a, b):
            harness.workspaces.sync("notes").run()
        assert (b.workspaces.get("notes").root / "MEMORY.md").exists()
        a.workspaces.patch("notes", {"description": "shared"})
        b.following.sync()
        roster = a.house.place.registry(a.rooms.principal.account_id)  # type: ignore[union-attr]
        seen = roster.read("workspace", record.id)
        assert seen is not None
        assert isinstance(seen.entry, LiveEntry)
        assert seen.entry.record["description"] == "shared"
        root = b.workspaces.get("notes").root
        (root / "offline.md").write_text("never pushed\n")
        a.deletion.workspace("notes", force=True)
        for harness in (b, a, b):
            harness.following.sync()  # type: ignore[union-attr]
        seen = roster.read("workspace", record.id)
        assert seen is not None
        assert isinstance(seen.entry, Tombstone)
        assert not root.exists()
        (buried,) = trash_entries(b.settings.home)
        assert buried.unpushed == ("offline.md",)
        assert buried.name == "notes"


def test_joining_is_refused_for_shared_records(tmp_path: Path, location: str) -> None:
    with pytest.raises(Refused) as refused:
        join(tmp_path / "b", location)
    assert "nothing to join" in (refused.value.remedy or "")


def test_a_reply_is_stored_without_writing_the_shared_usage_totals(
    tmp_path: Path, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Ledger, "note_with")
    model = ScriptedModel("hello")
    with Harness.open(tmp_path / "a", model=model, sandbox=NoSandbox("not here")) as harness:
        assert harness.run("hello", conversation="c1").status == "done"
        assert harness.usage().total.asked == 1
