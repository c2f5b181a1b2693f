"""Second machines, as processes against a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.servers import BUCKET, S3Server
from workspaces.ids import new_id


@pytest.fixture
def location() -> str:
    return f"s3://{BUCKET}/{new_id('test')}"


@pytest.fixture
def first(tmp_path: Path, seaweedfs: S3Server, location: str) -> Terminal:
    return Terminal(tmp_path / "first", {**seaweedfs.environment(), "HARNESS_S3": location})


@pytest.fixture
def second(tmp_path: Path, seaweedfs: S3Server) -> Terminal:
    """Another machine: what it knows of the first one is what a person types."""
    return Terminal(tmp_path / "second", seaweedfs.environment())


def test_a_second_machine_joins_attaches_and_goes_on(
    first: Terminal, second: Terminal, location: str
) -> None:
    first("run", "Remember that the release day is Thursday.").done()
    first("agent", "set", "assistant", "--system", "You are brief.").done()
    first("sync").done()
    joined = second("join", location, "--json").done().json
    account = first("account", "show", "--json").done().json
    assert joined["account"]["id"] == account["id"]
    assert joined["account"]["ownerId"] == account["ownerId"]
    assert joined["key"].startswith("wh_")
    listed = second("workspace", "attach", "--json").done().json["workspaces"]
    notes = first("workspace", "show", "notes", "--json").done().json
    assert listed == [{"id": notes["id"], "name": "notes", "attached": False, "problem": None}]
    attached = second("workspace", "attach", "notes", "--json").done().json
    assert attached["namespace"] == notes["namespace"]
    assert "release day is Thursday" in second("cat", "notes", "MEMORY.md").done().out
    assert second("agent", "show", "assistant", "--json").done().json["config"]["system"] == (
        "You are brief."
    )
    said = second("run", "When is the release day?").done()
    assert "Thursday" in said.out
    again = second("join", location, "--json").done().json
    assert (again["joined"], again["key"]) == (False, None)
