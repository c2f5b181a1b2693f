"""The workspaces of an account: deleting to the trash, names and ids, private workspaces."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.conftest import CALLER
from workspaces.errors import NotFound, Refused
from workspaces.home.layout import Home
from workspaces.home.workspaces import (
    Workspaces,
    private_to_agent,
    private_to_both,
    private_to_user,
)
from workspaces.ids import AgentId, UserId, namespace

Opened = Callable[[], Workspaces]


def test_a_deleted_workspace_is_in_the_trash_with_its_history(open_workspaces: Opened) -> None:
    workspaces = open_workspaces()
    workspace = workspaces.create("notes")
    workspace.write("MEMORY.md", "kept", by=CALLER)
    (workspace.root / "by-hand.md").write_text("not in any revision")
    place = workspaces.delete("notes")
    assert (place / "files/MEMORY.md").read_text() == "kept"
    assert (place / "files/by-hand.md").read_text() == "not in any revision"
    log = ["git", f"--git-dir={place / 'history.git'}", "log", "--format=%s", "main"]
    assert subprocess.run(log, capture_output=True, text=True, check=True).stdout.startswith(
        "MEMORY.md"
    )
    assert not workspace.root.exists()
    with pytest.raises(NotFound):
        workspaces.get("notes")
    assert workspaces.list() == []


def test_an_open_handle_of_a_deleted_workspace_cannot_write_into_the_trash(
    open_workspaces: Opened,
) -> None:
    held = open_workspaces().create("notes")
    held.write("MEMORY.md", "kept", by=CALLER)
    place = open_workspaces().delete("notes")
    for call in (
        lambda: held.write("MEMORY.md", "late", by=CALLER),
        lambda: held.delete("MEMORY.md", by=CALLER),
        held.edits.commit,
    ):
        with pytest.raises(NotFound):
            call()
    assert (place / "files/MEMORY.md").read_text() == "kept"


def test_a_workspace_name_is_free_again_after_a_deletion(open_workspaces: Opened) -> None:
    workspaces = open_workspaces()
    first = workspaces.create("notes").record
    workspaces.delete("notes")
    second = workspaces.create("notes")
    assert second.record.id != first.id
    assert second.files() == []


AGENT, USER = AgentId("agent_1"), UserId("usr_1")


def test_a_private_workspace_is_created_on_first_use(open_workspaces: Opened) -> None:
    workspaces = open_workspaces()
    assert workspaces.private(private_to_agent(AGENT), create=False) is None
    made = workspaces.private(private_to_agent(AGENT), create=True)
    assert made is not None
    made.write("MEMORY.md", "mine", by=CALLER)
    again = open_workspaces().private(private_to_agent(AGENT), create=True)
    assert again is not None
    assert again.read("MEMORY.md").text == "mine"


def test_private_workspaces_of_user_agent_and_pair_have_separate_namespaces(
    open_workspaces: Opened, home: Home
) -> None:
    workspaces = open_workspaces()
    ids = [private_to_agent(AGENT), private_to_user(USER), private_to_both(USER, AGENT)]
    assert ids == ["agent:agent_1", "user:usr_1", "user:usr_1:agent:agent_1"]
    made = [workspaces.private(one, create=True) for one in ids]
    assert len({one.namespace for one in made if one}) == 3
    assert made[0] is not None
    account = workspaces._principal.account_id
    assert made[0].namespace == namespace(account, "agent:agent_1")
    assert made[0].root == home.tree(made[0].namespace)


def test_private_workspaces_are_listed_only_on_request(open_workspaces: Opened) -> None:
    workspaces = open_workspaces()
    workspaces.create("notes")
    workspaces.private(private_to_user(USER), create=True)
    assert [record.name for record in workspaces.list()] == ["notes"]
    assert [record.id for record in workspaces.list(private=True)][-1] == "user:usr_1"


@pytest.mark.parametrize("name", ["agent:agent_1", "user:usr_1", "ws_" + "0" * 24])
def test_a_workspace_name_that_looks_like_an_id_is_refused(
    open_workspaces: Opened, name: str
) -> None:
    """Else whoever takes the name would be found where the private workspace is looked for."""
    workspaces = open_workspaces()
    with pytest.raises(Refused):
        workspaces.create(name)
    workspaces.create("notes")
    with pytest.raises(Refused):
        workspaces.patch("notes", {"name": name})


def descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_a_deleted_workspace_keeps_no_file_descriptor_open(open_workspaces: Opened) -> None:
    workspaces = open_workspaces()

    def live_and_die(name: str) -> None:
        workspace = workspaces.create(name)
        workspace.write("MEMORY.md", "kept", by=CALLER)
        assert "kept" in workspace.read("MEMORY.md").text
        workspaces.delete(name)

    live_and_die("first")
    gc.collect()
    before = descriptors()
    gc.disable()  # nothing waits for a collection, which may be far away
    try:
        for number in range(5):
            live_and_die(f"w{number}")
        assert descriptors() == before
    finally:
        gc.enable()
