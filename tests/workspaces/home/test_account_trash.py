"""Deleted workspaces are listed, come back, or go for good."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from workspaces.accounts.account import default_owner
from workspaces.accounts.principal import Principal
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists, Busy, NotFound, Refused
from workspaces.home.account_trash import AccountTrash, TrashedWorkspace, empty_old
from workspaces.home.deletion_hold import hold_off_deletions
from workspaces.home.layout import Home
from workspaces.home.trash import TrashEntry, begin_disposal, trash_entries
from workspaces.home.workspaces import Workspaces, private_to_user
from workspaces.ids import AccountId, UserId, namespace
from workspaces.storage.in_memory import MemoryRecords
from workspaces.timestamp import stamp_of


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def owner(records: MemoryRecords, clock: ManualClock) -> Principal:
    return default_owner(records, clock)


@pytest.fixture
def opened(
    owner: Principal, records: MemoryRecords, home: Home, clock: ManualClock
) -> tuple[Workspaces, AccountTrash]:
    workspaces = Workspaces(owner, home, records, clock, template=lambda _: {})
    return workspaces, AccountTrash(owner, home, workspaces, clock)


def deleted(workspaces: Workspaces, name: str, text: str) -> str:
    workspace = workspaces.create(name)
    workspace.write("a.md", "first\n")
    revision = workspace.write("a.md", text).revision
    workspaces.delete(name)
    assert revision is not None
    return revision


def deleted_twice(
    workspaces: Workspaces, trash: AccountTrash, clock: ManualClock
) -> list[TrashedWorkspace]:
    """Delete two workspaces of one name, and return both, oldest first."""
    for text in ("old\n", "new\n"):
        deleted(workspaces, "notes", text)
        clock.advance(1)
    return trash.list()


def test_a_deleted_workspace_comes_back_with_its_files_and_its_history(
    opened: tuple[Workspaces, AccountTrash],
) -> None:
    workspaces, trash = opened
    revision = deleted(workspaces, "notes", "second\n")
    (trashed,) = trash.list()
    assert (trashed.entry.name, trashed.as_json()["why"]) == ("notes", "here")
    record = trash.restore("notes")
    workspace = workspaces.get("notes")
    assert record.id != trashed.entry.id
    assert workspace.read("a.md").text == "second\n" and workspace.history.tip() == revision
    assert [one.paths for one in workspace.log("a.md")] == [("a.md",), ("a.md",)]
    workspace.write("a.md", "third\n")
    assert trash.list() == [] and not trashed.entry.place.exists()
    with pytest.raises(NotFound):
        trash.restore("notes")


def test_the_newest_of_a_name_comes_back_and_an_older_one_by_its_place(
    opened: tuple[Workspaces, AccountTrash], clock: ManualClock
) -> None:
    workspaces, trash = opened
    old, _ = deleted_twice(workspaces, trash, clock)
    trash.restore("notes")
    assert workspaces.get("notes").read("a.md").text == "new\n"
    with pytest.raises(AlreadyExists):
        trash.restore(old.name)
    assert trash.list() == [old] and (old.entry.files / "a.md").read_text() == "old\n"
    trash.restore(str(old.entry.place), name="older")
    assert workspaces.get("older").read("a.md").text == "old\n"


def test_a_failure_after_the_move_puts_everything_back(
    opened: tuple[Workspaces, AccountTrash], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces, trash = opened
    deleted(workspaces, "notes", "kept\n")

    def fails(_: object) -> None:
        raise AlreadyExists("workspace", "notes")

    monkeypatch.setattr(workspaces, "_make_storage", fails)
    with pytest.raises(AlreadyExists):
        trash.restore("notes")
    (trashed,) = trash.list()
    assert (trashed.entry.files / "a.md").read_text() == "kept\n"
    assert list(home.trees.iterdir()) == []


def test_only_what_is_old_enough_goes_and_a_backup_holds_it_off(
    opened: tuple[Workspaces, AccountTrash], home: Home, clock: ManualClock
) -> None:
    workspaces, trash = opened
    deleted(workspaces, "old", "x\n")
    clock.advance(10 * 86400)
    deleted(workspaces, "new", "x\n")
    with hold_off_deletions(home), pytest.raises(Busy):
        trash.empty()
    assert [one.entry.name for one in trash.empty(older_than=timedelta(days=9))] == ["old"]
    assert [one.entry.name for one in trash.empty()] == ["new"]
    assert list(home.trash_root.iterdir()) == []


def test_the_task_leaves_changes_that_never_reached_another_machine(
    opened: tuple[Workspaces, AccountTrash], home: Home, clock: ManualClock
) -> None:
    workspaces, _ = opened
    deleted(workspaces, "old", "x\n")
    stamp, name = stamp_of(clock.now()), namespace("acct_1", "ws_1")
    unpushed = TrashEntry(home.trash(name, stamp), "ws_1", "b", "elsewhere", ("a.md",))
    begin_disposal(home, name, unpushed)
    clock.advance(86400)
    assert empty_old(home, clock.now() - timedelta(days=2)) == []
    assert [one.entry.name for one in empty_old(home, clock.now())] == ["old"]
    assert [entry.name for entry in trash_entries(home)] == ["b"]


def test_one_is_removed_by_the_name_of_its_directory_alone(
    opened: tuple[Workspaces, AccountTrash], clock: ManualClock
) -> None:
    workspaces, trash = opened
    old, new = deleted_twice(workspaces, trash, clock)
    assert old.size().files == 1 and old.size().bytes == old.as_json()["bytes"] > len("old\n")
    for wrong in ("notes", old.entry.id, str(old.entry.place), "..", ""):
        with pytest.raises(NotFound):
            trash.remove(wrong)
    assert trash.remove(old.name) == old
    assert trash.list() == [new] and not old.entry.place.exists()


def test_what_was_private_to_another_user_can_be_removed_and_not_restored(
    opened: tuple[Workspaces, AccountTrash], owner: Principal, home: Home, clock: ManualClock
) -> None:
    workspaces, trash = opened
    stamp = stamp_of(clock.now())
    for user in ("usr_other", owner.user_id):
        name = namespace(owner.account_id, private_to_user(UserId(user)))
        begin_disposal(
            home, name, TrashEntry(home.trash(name, stamp), f"user:{user}", f"user:{user}", "here")
        )
    other, own = sorted(trash.list(), key=lambda one: one.entry.id != "user:usr_other")
    assert (trash.is_readable(other), trash.is_readable(own)) == (False, True)
    with pytest.raises(Refused, match="private to another user"):
        trash.restore("user:usr_other")
    assert trash.restore(own.name, name="mine").name == "mine"
    assert trash.remove(other.name) == other and workspaces.record("mine")


def test_the_trash_of_another_account_is_not_listed(
    opened: tuple[Workspaces, AccountTrash], owner: Principal, home: Home, clock: ManualClock
) -> None:
    workspaces, trash = opened
    deleted(workspaces, "notes", "x\n")
    stranger = replace(owner, account_id=AccountId("acct_other"))
    other = AccountTrash(stranger, home, workspaces, clock)
    assert len(trash.list()) == 1 and other.list() == [] and other.empty() == []
    with pytest.raises(NotFound):
        other.restore("notes")
