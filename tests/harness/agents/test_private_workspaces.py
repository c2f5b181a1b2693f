"""Private workspaces of agents and users: when they are mounted, and when they are deleted."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.tools.tool_context import ToolContext
from workspaces.errors import InUse, NotFound, Refused
from workspaces.home.workspaces import private_to_user
from workspaces.revision import Author

AUTHOR = Author("helper", "agent_1", "turn")


def test_an_empty_private_workspace_is_not_mounted(harness: Harness) -> None:
    agent = harness.agents.get("assistant")
    assert [mount.name for mount in harness.agents.bindings(agent)] == ["notes"]


def test_private_workspaces_are_mounted_read_only_by_default(
    harness: Harness,
) -> None:
    agent = harness.agents.get("assistant")
    mine = harness.workspaces.private(private_to_user(harness.rooms.principal.user_id), create=True)
    assert mine is not None
    mine.write("MEMORY.md", "- the owner likes tea\n", by=AUTHOR)
    mounts = harness.agents.bindings(agent)
    assert [(mount.name, mount.is_writable) for mount in mounts] == [
        ("notes", True),
        ("_user", False),
    ]
    assert "the owner likes tea" in harness.preview(agent).request.system[-1]
    off = harness.agents.patch(agent.id, {"config": {"private": "off"}})
    assert [mount.name for mount in harness.agents.bindings(off)] == ["notes"]


def test_an_agent_can_mount_private_workspaces_writable(harness: Harness) -> None:
    agent = harness.agents.create("diarist", private="rw")
    names = [(mount.name, mount.is_writable) for mount in harness.agents.bindings(agent)]
    assert names == [("_agent", True), ("_user", True), ("_user-agent", True)]


def test_a_private_workspace_is_never_the_default_mount(harness: Harness) -> None:
    agent = harness.agents.create("diarist", private="rw")
    desk = ToolContext(harness.agents.bindings(agent), lambda call_id: AUTHOR)
    with pytest.raises(Refused) as caught:
        desk.mount(None)
    assert "_user-agent" in (caught.value.remedy or "")
    assert desk.mount("_agent").is_private


def test_deleting_an_agent_deletes_its_private_workspace(harness: Harness) -> None:
    agent = harness.agents.create("diarist", private="rw")
    harness.agents.bindings(agent)
    harness.deletion.agent("diarist")
    left = [record.id for record in harness.workspaces.list(private=True) if ":" in record.id]
    assert left == [private_to_user(harness.rooms.principal.user_id)]


def test_a_mounted_workspace_is_deleted_only_by_force(harness: Harness) -> None:
    with pytest.raises(InUse, match="assistant"):
        harness.deletion.workspace("notes")
    (place,) = harness.deletion.workspace("notes", force=True).trash
    assert (place / "files/MEMORY.md").exists()
    assert harness.agents.bindings(harness.agents.get("assistant")) == []
    assert harness.run("hello").status == "done"
    with pytest.raises(NotFound):
        harness.workspaces.get("notes")
