"""Accounts, users, keys and sandboxes from the command line."""

from __future__ import annotations

from typing import Any

from harness import Harness
from harness.bootstrap.authentication import Access
from tests.harness.cli.terminal import Terminal
from workspaces.errors import Unauthorized


def test_a_second_account_is_ready_to_chat_and_shares_no_files(harness: Terminal) -> None:
    made = harness("account", "create", "work", "--json").json
    assert made["key"].startswith("wh_")
    harness("write", "notes", "secret.md", stdin=b"- of the default account\n").done()
    harness("run", "Remember that the door is blue.", "--account", "work").done()
    memory = harness("cat", "notes", "MEMORY.md", "--account", "work").done().out
    assert "the door is blue" in memory
    assert "the door is blue" not in harness("cat", "notes", "MEMORY.md").done().out
    assert "secret.md" not in harness("--account=work", "ls", "notes").done().out
    listed = harness("account", "list", "--json").json["accounts"]
    assert [account["name"] for account in listed] == ["default", "work"]
    shown = harness("account", "show", "--account", made["id"], "--json").json
    assert shown["name"] == "work"


def test_an_unknown_account_is_named_in_the_error(harness: Terminal) -> None:
    ended = harness("ls", "notes", "--account", "nowhere")
    assert ended.code == 1
    assert "there is no account 'nowhere'" in ended.stderr


def test_an_account_with_workspaces_is_deleted_only_with_force(harness: Terminal) -> None:
    harness("account", "create", "work").done()
    refused = harness("account", "rm", "work", "--json")
    assert refused.code == 1
    assert refused.json["error"]["code"] == "in_use"
    gone = harness("account", "rm", "work", "--force", "--json").json
    assert gone["deleted"] is True
    assert len(gone["trash"]) == 1
    assert harness("ls", "notes", "--account", "work").code == 1
    harness("ls", "notes").done()


def test_account_set_changes_the_name_and_user_autocreation(harness: Terminal) -> None:
    shown = harness("account", "set", "--name", "mine", "--users-autocreate", "off", "--json").json
    assert (shown["name"], shown["config"]) == ("mine", {"users": {"autocreate": False}})


def test_users_are_created_shown_changed_and_deleted(harness: Terminal) -> None:
    made = harness("user", "create", "Alice", "--external-id", "auth0|7", "--json").json
    assert harness("user", "show", "auth0|7", "--json").json == made
    changed = harness("user", "set", made["id"], "--external-id", "", "--json").json
    assert "externalId" not in changed
    names = [user["name"] for user in harness("user", "list", "--json").json["users"]]
    assert names == ["Alice", "owner"]
    assert "Alice" in harness("user", "list").done().out
    key = harness("key", "create", "--user", "Alice", "--json").json
    gone = harness("user", "rm", "Alice", "--json").json
    assert (gone["deleted"], gone["keys"]) == (True, [key["id"]])
    assert harness("user", "rm", "owner").code == 1


def test_a_key_is_shown_only_once_and_can_be_rotated_and_revoked(harness: Terminal) -> None:
    made = harness("key", "create", "--label", "ci", "--json")
    assert "cannot be shown again" in made.stderr
    first = made.json
    assert _is_known(harness, first["key"])
    listed = harness("key", "list", "--json")
    assert first["key"] not in listed.out
    assert [key["label"] for key in listed.json["keys"]] == ["ci"]
    second = harness("key", "rotate", first["id"], "--json").json
    assert (_is_known(harness, first["key"]), _is_known(harness, second["key"])) == (False, True)
    harness("key", "rm", second["id"]).done()
    assert not _is_known(harness, second["key"])
    assert harness("key", "rm", second["id"]).code == 1


def test_a_key_with_a_past_expiry_is_refused(harness: Terminal) -> None:
    ended = harness("key", "create", "--expires", "2020-01-01T00:00:00Z", "--json")
    assert ended.code == 1
    assert ended.json["error"]["field"] == "expiresAt"


def test_sandboxes_are_created_shown_changed_and_deleted(harness: Terminal) -> None:
    made = harness("sandbox", "create", "reader", "--mode", "ro", "--json").json
    assert made["config"]["mode"] == "ro"
    agent = harness("agent", "create", "careful", "--sandbox", "reader", "--json").json
    assert agent["config"]["sandbox"] == made["id"]
    changed = harness("sandbox", "set", "reader", "--network", "host", "--json").json
    assert changed["config"] == {"mode": "ro", "network": "host"}
    assert "reader" in harness("sandbox", "list").done().out
    in_use = harness("sandbox", "rm", "reader")
    assert in_use.code == 1
    assert "careful" in in_use.stderr
    harness("sandbox", "rm", "reader", "--force").done()
    left: list[dict[str, Any]] = harness("sandbox", "list", "--json").json["sandboxes"]
    assert [sandbox["name"] for sandbox in left] == ["default"]


def test_the_sandbox_of_an_agent_is_set_by_name_and_stored_by_id(harness: Terminal) -> None:
    made = harness("sandbox", "create", "other", "--json").json
    agent = harness("agent", "set", "assistant", "--sandbox", "other", "--json").json
    assert agent["config"]["sandbox"] == made["id"]
    agent = harness("agent", "set", "assistant", "--sandbox", "none", "--json").json
    assert "sandbox" not in agent["config"]


def test_the_config_option_applies_a_json_merge_patch(harness: Terminal) -> None:
    one = ("--config", '{"quota": {"files": 5}, "harness": {"enabled": true}}')
    made = harness("workspace", "create", "small", "--harness", "off", *one, "--json").json
    assert made["config"] == {"quota": {"files": 5}, "harness": {"enabled": False}}
    more = harness("workspace", "set", "small", "--config", '{"quota": null}', "--json").json
    assert more["config"] == {"harness": {"enabled": False}}
    mount = f'{{"workspaces": [{{"name": "n", "workspaceId": "{made["id"]}"}}], "private": "off"}}'
    agent = harness("agent", "create", "second", "--config", mount, "--json").json
    assert [mount["name"] for mount in agent["config"]["workspaces"]] == ["n"]
    assert harness("agent", "set", "second", "--config", '{"private": null}').code == 0
    for bad in ("{", "[]", '{"privat": "ro"}', '{"private": "maybe"}', "[" * 100_000):
        harness("agent", "set", "second", "--config", bad).refused("config")


def _is_known(harness: Terminal, secret: str) -> bool:
    with Harness.open(harness.home) as opened:
        try:
            Access(opened.house).principal_of(secret)
        except Unauthorized:
            return False
        return True
