"""Authentication: which principal a key, a start token or the admin key stands for."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import Harness
from harness.bootstrap.authentication import Access, admin_key, is_start_token, start_token
from workspaces.errors import Forbidden, NotFound, Unauthorized
from workspaces.home.layout import Home


@pytest.fixture
def access(harness: Harness) -> Access:
    return Access(harness.house)


def test_an_account_key_acts_as_the_owner(harness: Harness, access: Access) -> None:
    _, secret = harness.rooms.keys.create()
    assert access.principal_of(secret) == harness.rooms.principal


def test_an_account_key_acts_as_the_user_named_in_the_request(
    harness: Harness, access: Access
) -> None:
    _, secret = harness.rooms.keys.create()
    alice = access.principal_of(secret, as_user="auth0|7")
    assert alice.user_id == harness.rooms.users.get("auth0|7").id
    assert alice.may_configure
    assert alice.owner == harness.rooms.principal.user
    assert access.principal_of(secret, as_user=alice.user_id) == alice


def test_naming_an_unknown_user_creates_none_when_autocreate_is_off(
    harness: Harness, access: Access
) -> None:
    _, secret = harness.rooms.keys.create()
    account_id = harness.rooms.principal.account_id
    harness.house.accounts.patch(account_id, {"config": {"users": {"autocreate": False}}})
    with pytest.raises(NotFound):
        access.principal_of(secret, as_user="auth0|7")


def test_a_users_key_acts_only_as_that_user(harness: Harness, access: Access) -> None:
    alice = harness.rooms.users.add({"externalId": "alice"})
    harness.rooms.users.add({"externalId": "bob"})
    _, secret = harness.rooms.keys.create(user_id=alice.id)
    principal = access.principal_of(secret)
    assert (principal.user_id, principal.may_configure) == (alice.id, False)
    assert access.principal_of(secret, as_user="alice") == principal
    assert access.principal_of(secret, as_user=alice.id) == principal
    for other in ("bob", harness.rooms.principal.user_id, "nobody-yet"):
        with pytest.raises(Forbidden):
            access.principal_of(secret, as_user=other)
    with pytest.raises(NotFound):
        harness.rooms.users.get("nobody-yet")


@pytest.mark.parametrize(
    "secret", ["", "wh_", "wh_" + "x" * 43, "whu_" + "x" * 43, "../tokens", "\0"]
)
def test_an_invalid_key_is_unauthorized(access: Access, secret: str) -> None:
    with pytest.raises(Unauthorized):
        access.principal_of(secret)
    assert access.key_of(secret) is None
    assert not access.is_admin(secret)


def test_the_key_of_a_deleted_user_is_unauthorized(harness: Harness, access: Access) -> None:
    alice = harness.rooms.users.add({"externalId": "alice"})
    _, secret = harness.rooms.keys.create(user_id=alice.id)
    harness.rooms.users.delete(alice.id)  # the record alone: as a deletion that was interrupted
    with pytest.raises(Unauthorized):
        access.principal_of(secret)


def test_the_key_of_a_deleted_account_is_unauthorized(harness: Harness, access: Access) -> None:
    accounts = harness.house.accounts
    account = accounts.add({"name": "other"})
    _, secret = harness.house.rooms(accounts.owner(account)).keys.create()
    assert access.principal_of(secret).account_id == account.id
    accounts.delete(account.id)
    with pytest.raises(Unauthorized):
        access.principal_of(secret)


def test_a_user_is_forbidden_to_change_records_of_the_account(
    harness: Harness, access: Access
) -> None:
    alice = harness.rooms.users.add({"externalId": "alice"})
    _, secret = harness.rooms.keys.create(user_id=alice.id)
    rooms = harness.house.rooms(access.principal_of(secret))
    agent = harness.agents.get("assistant")
    for attempt in (
        lambda: rooms.agents.add({"name": "mine"}),
        lambda: rooms.agents.patch(agent.id, {"name": "mine"}),
        lambda: rooms.workspaces.create("mine"),
        lambda: rooms.workspaces.patch("notes", {"name": "mine"}),
        lambda: rooms.workspaces.delete("notes"),
        lambda: rooms.sandboxes.add({"name": "mine"}),
        lambda: rooms.users.add({"name": "mine"}),
        lambda: rooms.keys.create(),
        lambda: rooms.deletion.agent(agent.id),
        lambda: rooms.deletion.workspace("notes", force=True),
        lambda: rooms.deletion.sandbox("default", force=True),
        lambda: rooms.deletion.user(alice.id),
        rooms.deletion.account,
        lambda: rooms.workspaces.reach("notes"),
    ):
        with pytest.raises(Forbidden):
            attempt()
    assert rooms.agents.get("assistant") == agent


def test_private_workspaces_of_another_user_are_not_found(harness: Harness, access: Access) -> None:
    alice = harness.rooms.users.add({"externalId": "alice"})
    bob = harness.rooms.users.add({"externalId": "bob"})
    agent = harness.agents.create("diarist", private="rw")
    _, account_key = harness.rooms.keys.create()
    _, alices_key = harness.rooms.keys.create(user_id=alice.id)
    _, bobs_key = harness.rooms.keys.create(user_id=bob.id)
    alices = harness.house.rooms(access.principal_of(alices_key))
    private = [mount.workspace.record.id for mount in alices.agents.bindings(agent)]
    assert private == [f"agent:{agent.id}", f"user:{alice.id}", f"user:{alice.id}:agent:{agent.id}"]
    of_agent, *of_alice = private
    for name in of_alice:
        assert alices.workspaces.reach(name).record.id == name
        for other in (
            access.principal_of(bobs_key),
            access.principal_of(account_key),
            access.principal_of(account_key, as_user="bob"),
        ):
            with pytest.raises(NotFound):
                harness.house.rooms(other).workspaces.reach(name)
    with pytest.raises(Forbidden):
        alices.workspaces.reach(of_agent)
    assert harness.workspaces.reach(of_agent).record.id == of_agent


def test_a_manual_edit_is_attributed_to_the_owner_whichever_user_runs_the_turn(
    harness: Harness, access: Access
) -> None:
    _, secret = harness.rooms.keys.create()
    rooms = harness.house.rooms(access.principal_of(secret, as_user="alice"))
    notes = rooms.workspaces.get("notes")
    (notes.root / "hand.md").write_text("- by hand\n")
    notes.edits.commit()
    assert [entry.author for entry in notes.log()][:1] == ["owner"]


def test_the_admin_key_is_created_once_and_readable_only_by_its_owner(
    harness: Harness, access: Access
) -> None:
    home = harness.settings.home
    with ThreadPoolExecutor(8) as pool:
        (key,) = {*pool.map(lambda _: admin_key(home), range(8))}
    assert stat.S_IMODE(home.admin_key.stat().st_mode) == 0o600
    assert access.is_admin(key)
    assert not access.is_admin(key + "x")
    assert [*(home.root / "staging").glob("admin*")] == []


def test_the_environment_overrides_the_admin_key(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_ADMIN_KEY", "chosen")
    with Harness.open(home) as harness:
        access = Access(harness.house)
        assert access.is_admin("chosen")
        assert not access.is_admin(admin_key(harness.settings.home))


def test_a_start_token_acts_as_the_owner_in_every_process_of_the_home(
    harness: Harness, access: Access
) -> None:
    home = harness.settings.home
    with start_token(home) as token:
        assert len(token) >= 43
        assert access.principal_of(token) == harness.rooms.principal
        assert access.principal_of(token, as_user="alice").user.name == "alice"
        assert access.key_of(token) is None
        ask = "import sys; from pathlib import Path; from workspaces.home.layout import Home; "
        ask += "from harness.bootstrap.authentication import is_start_token; "
        ask += "print(is_start_token(Home(Path(sys.argv[1])), sys.argv[2]))"
        command = [sys.executable, "-c", ask, str(home.root), token]
        assert (
            subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "True\n"
        )
    with pytest.raises(Unauthorized):
        access.principal_of(token)


def test_a_start_token_stays_valid_while_another_server_of_the_home_runs(harness: Harness) -> None:
    home = harness.settings.home
    with start_token(home) as second:
        with start_token(home) as first:
            pass
        assert is_start_token(home, first)
        assert is_start_token(home, second)
    with start_token(home) as third:
        assert is_start_token(home, third)
        assert not is_start_token(home, first)
        assert not is_start_token(home, second)


def test_the_start_token_of_a_killed_server_is_invalid(harness: Harness) -> None:
    home = harness.settings.home
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve_and_die, args=(home.root, theirs))
    server.start()
    assert ours.poll(60)
    token = ours.recv()
    server.join(60)
    assert server.exitcode == -9
    assert not is_start_token(home, token)


def test_no_start_token_is_stored_in_the_home(harness: Harness) -> None:
    home = harness.settings.home
    with start_token(home) as token:
        files = [path for path in home.root.rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if token.encode() in path.read_bytes()]
        assert not [path for path in files if token in path.name]


def _serve_and_die(root: Path, pipe) -> None:
    with start_token(Home(root)) as token:
        pipe.send(token)
        os.kill(os.getpid(), 9)
