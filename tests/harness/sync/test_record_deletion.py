from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from harness.agents.mounts import missing_mounts
from harness.bootstrap.authentication import Access
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from tests.harness.messages_server import KEY, MessagesServer, says, text
from workspaces.errors import InUse, NotFound, Refused, Unauthorized


def test_a_mounted_workspace_is_deleted_only_with_force(harness: Harness) -> None:
    agent = harness.agents.get("assistant")
    with pytest.raises(InUse, match="assistant"):
        harness.deletion.workspace("notes")
    assert missing_mounts(agent, harness.agents.bindings(agent)) == []
    gone = harness.deletion.workspace("notes", force=True)
    assert [(place / "files" / "MEMORY.md").exists() for place in gone.trash] == [True]
    assert harness.agents.bindings(agent) == []
    assert missing_mounts(agent, harness.agents.bindings(agent)) == ["notes"]


def test_a_sandbox_used_by_an_agent_is_deleted_only_with_force(harness: Harness) -> None:
    agent = harness.agents.get("assistant")
    with pytest.raises(InUse, match="assistant"):
        harness.deletion.sandbox("default")
    harness.deletion.sandbox("default", force=True)
    assert harness.agents.bindings(agent) == []
    assert missing_mounts(agent, harness.agents.bindings(agent)) == ["notes"]


def test_a_sandbox_used_by_a_mount_is_not_deleted_without_force(harness: Harness) -> None:
    extra = harness.rooms.sandboxes.add({"name": "extra"})
    notes = harness.workspaces.get("notes")
    mount = {"name": "n", "workspaceId": notes.record.id, "sandbox": extra.id}
    harness.agents.add({"name": "second", "config": {"workspaces": [mount]}})
    with pytest.raises(InUse, match="second"):
        harness.deletion.sandbox("extra")


def test_a_turn_runs_without_the_mount_of_a_deleted_workspace(harness: Harness) -> None:
    harness.deletion.workspace("notes", force=True)
    assert harness.run("hello").status == "done"


def test_deleting_a_user_deletes_its_keys_and_private_workspaces(harness: Harness) -> None:
    alice = harness.rooms.users.add({"externalId": "alice"})
    bob = harness.rooms.users.add({"externalId": "bob"})
    agent = harness.agents.create("diarist", private="rw")
    access = Access(harness.house)
    _, account_key = harness.rooms.keys.create()
    _, alices_key = harness.rooms.keys.create(user_id=alice.id)
    for name in ("alice", "bob"):
        rooms = harness.house.rooms(access.principal_of(account_key, as_user=name))
        rooms.agents.bindings(agent)
    gone = harness.deletion.user("alice")
    assert len(gone.trash) == 2
    assert len(gone.keys) == 1
    with pytest.raises(Unauthorized):
        access.principal_of(alices_key)
    left = {record.id for record in harness.workspaces.list(private=True) if ":" in record.id}
    expected = {f"agent:{agent.id}", f"user:{bob.id}", f"user:{bob.id}:agent:{agent.id}"}
    assert left == expected
    assert access.principal_of(account_key) == harness.rooms.principal


def test_the_owner_of_an_account_cannot_be_deleted(harness: Harness) -> None:
    with pytest.raises(Refused, match="owner"):
        harness.deletion.user("owner")


def test_deleting_an_account_deletes_all_its_records_and_no_other_account(harness: Harness) -> None:
    accounts, access = harness.house.accounts, Access(harness.house)
    account = accounts.add({"name": "platform"})
    rooms = harness.house.rooms(accounts.owner(account))
    _, secret = rooms.keys.create()
    workspace = rooms.workspaces.create("shared")
    rooms.agents.create("helper", workspaces=[workspace], sandbox=None)
    gone = rooms.deletion.account()
    assert len(gone.trash) == 1
    assert harness.house.records.scan(f"account:{account.id}") == []
    with pytest.raises(Unauthorized):
        access.principal_of(secret)
    with pytest.raises(NotFound):
        accounts.get("platform")
    assert harness.workspaces.get("notes").read("MEMORY.md")
    assert harness.run("still there?").status == "done"


def test_a_reference_to_a_record_by_name_is_refused(harness: Harness) -> None:
    for config, field in (
        (
            {"workspaces": [{"name": "n", "workspaceId": "notes"}]},
            "config.workspaces.0.workspaceId",
        ),
        ({"sandbox": "default"}, "config.sandbox"),
    ):
        with pytest.raises(Refused) as caught:
            harness.agents.add({"name": "second", "config": config})
        assert caught.value.field == field


def test_deleting_an_account_deletes_its_usage_records(
    tmp_path: Path, server: MessagesServer
) -> None:
    server.answers(says(text("Yes.")))
    model = AnthropicModel("claude-test", AnthropicClients(KEY, server.url))
    with Harness.open(tmp_path / "home", model=model) as harness:
        check_that_usage_goes_with_its_account(harness)


def check_that_usage_goes_with_its_account(harness: Harness) -> None:
    account = harness.rooms.principal.account_id
    harness.house.accounts.patch(account, {"config": {"limits": {"turnsPerMinute": 5}}})
    harness.run("Hello?")
    records = harness.house.records
    assert records.scan(f"usage:{account}")
    assert records.scan(f"allowance:{account}")
    harness.deletion.account()
    assert records.scan(f"usage:{account}") == []
    assert records.scan(f"allowance:{account}") == []
