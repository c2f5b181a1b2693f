"""The catalog of agents: their configuration and the mounts that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from harness import Harness
from harness.agents.mounts import mount_name
from workspaces.errors import AlreadyExists, NotFound, Refused


def test_an_agent_created_in_python_gets_the_default_sandbox_unless_another_is_given(
    harness: Harness,
) -> None:
    (mount,) = harness.agents.bindings(harness.agents.create("one", workspaces=["notes"]))
    assert mount.is_writable
    without = harness.agents.create("two", workspaces=["notes"], sandbox=None)
    assert not harness.agents.bindings(without)[0].is_writable


def test_an_agent_created_over_the_api_has_no_sandbox_unless_its_configuration_names_a_sandbox(
    harness: Harness,
) -> None:
    notes = harness.workspaces.get("notes").record
    config = {"workspaces": [{"name": "n", "workspaceId": notes.id}]}
    agent = harness.agents.add({"name": "api", "config": config})
    assert not harness.agents.bindings(agent)[0].is_writable


def test_the_sandbox_of_a_mount_overrides_the_agents_and_null_means_none(harness: Harness) -> None:
    agent = harness.agents.create("one", workspaces=["notes"])
    (mount,) = agent.as_json()["config"]["workspaces"]
    locked = harness.rooms.sandboxes.add({"name": "locked", "config": {"mode": "ro"}})
    for sandbox in (None, locked.id):
        patch = {"config": {"workspaces": [{**mount, "sandbox": sandbox}]}}
        agent = harness.agents.patch(agent.id, patch)
        assert not harness.agents.bindings(agent)[0].is_writable
    agent = harness.agents.patch(agent.id, {"config": {"workspaces": [mount]}})
    assert harness.agents.bindings(agent)[0].is_writable


def test_the_first_mount_is_the_default(harness: Harness) -> None:
    harness.workspaces.create("second")
    agent = harness.agents.create("one", workspaces=["second", "notes"])
    assert [mount.name for mount in harness.agents.bindings(agent)] == ["second", "notes"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"workspaces": [{"name": "a b", "workspaceId": "W"}]}, "config.workspaces.0.name"),
        ({"workspaces": [{"name": "-a", "workspaceId": "W"}]}, "config.workspaces.0.name"),
        ({"workspaces": [{"name": "a", "workspaceId": ""}]}, "config.workspaces.0.workspaceId"),
        ({"workspaces": [{"name": "a", "workspaceId": "ws_x"}]}, "config.workspaces.0.workspaceId"),
        ({"workspaces": [{"name": "a"}]}, "config.workspaces.0.workspaceId"),
        ({"workspaces": [{"name": "a", "workspaceId": "W"}] * 2}, "config.workspaces.1.name"),
        (
            {"workspaces": [{"name": n, "workspaceId": "W"} for n in "ab"]},
            "config.workspaces.1.workspaceId",
        ),
        ({"sandbox": "sb_x"}, "config.sandbox"),
        ({"limits": {"steps": 0}}, "config.limits.steps"),
        ({"limits": {"steps": True}}, "config.limits.steps"),
        *(
            ({"session": {"memory": {"maxLength": bad}}}, "config.session.memory.maxLength")
            for bad in (0, 200_001, 1.5, "x", True)
        ),
        ({"session": {"memory": {"length": 1}}}, "config.session.memory.length"),
        ({"modle": "x"}, "config.modle"),
    ],
)
def test_an_invalid_agent_configuration_is_refused_naming_the_field(
    harness: Harness, config: dict[str, Any], field: str
) -> None:
    notes = harness.workspaces.get("notes").record.id
    stated = {
        **config,
        **(
            {
                "workspaces": [
                    {**mount, "workspaceId": notes} if mount.get("workspaceId") == "W" else mount
                    for mount in config["workspaces"]
                ]
            }
            if "workspaces" in config
            else {}
        ),
    }
    with pytest.raises(Refused) as caught:
        harness.agents.add({"name": "x", "config": stated})
    assert caught.value.field == field
    with pytest.raises(NotFound):
        harness.agents.get("x")


def test_agent_names_are_unique(harness: Harness) -> None:
    with pytest.raises(AlreadyExists):
        harness.agents.create("assistant")


@pytest.mark.parametrize(
    ("workspace", "mount"),
    [
        ("notes", "notes"),
        ("my notes", "my-notes"),
        ("..x", "x"),
        ("日本", "workspace"),
        ("a/b_c", "a-b_c"),
        ("_user", "user"),
        ("x" * 100, "x" * 64),
    ],
)
def test_a_mount_is_named_after_its_workspace(workspace: str, mount: str) -> None:
    assert mount_name(workspace) == mount


def test_a_mount_of_a_deleted_workspace_does_not_block_other_changes_of_the_agent(
    harness: Harness,
) -> None:
    harness.workspaces.create("plans")
    agent = harness.agents.create("planner", workspaces=["plans", "notes"])
    harness.deletion.workspace("plans", force=True)
    changed = harness.agents.patch(agent.id, {"config": {"system": "Be brief."}})
    assert [mount.name for mount in changed.config.workspaces] == ["plans", "notes"]
    gone = agent.config.workspaces[0].workspace_id
    with pytest.raises(Refused):
        harness.agents.create(
            "another", config={"workspaces": [{"name": "x", "workspaceId": gone}]}
        )
    with pytest.raises(Refused):
        mounts = [{"name": "x", "workspaceId": "ws_" + 24 * "0"}]
        harness.agents.patch(agent.id, {"config": {"workspaces": mounts}})
