from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.accounts.account import default_owner
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.stored_items import partition_of
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import AlreadyExists, Conflict, NotFound, OverLimit, Refused, WorkspaceBusy
from workspaces.home.layout import Home
from workspaces.home.workspaces import WORKSPACES, Workspaces
from workspaces.ids import version_of
from workspaces.storage.in_memory import MemoryRecords
from workspaces.workspace.workspace import Workspace


def authors(workspace: Workspace) -> list[str]:
    return [revision.author for revision in workspace.log()]


def test_a_write_creates_a_plain_file_and_a_revision(workspace: Workspace, root: Path) -> None:
    written = workspace.write("notes/a.md", "hello\n", by=CALLER)
    assert (root / "notes/a.md").read_text() == "hello\n"
    assert written.version == version_of(b"hello\n")
    assert written.revision == workspace.history.tip()
    assert workspace.read("notes/a.md").text == "hello\n"
    assert authors(workspace) == ["caller"]


def test_a_view_of_a_revision_shows_the_files_of_that_revision(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one", by=CALLER).revision
    workspace.write("MEMORY.md", "two", by=CALLER)
    assert first is not None
    assert workspace.read("MEMORY.md", view=first).text == "one"
    assert workspace.read("MEMORY.md").text == "two"
    with pytest.raises(NotFound):
        workspace.read("other.md", view=first)


def test_writing_the_same_bytes_creates_no_revision(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "same", by=CALLER)
    assert workspace.write("MEMORY.md", "same", by=AGENT).revision is None
    assert len(workspace.log()) == 1


def test_a_write_or_delete_with_a_stale_version_changes_nothing(workspace: Workspace) -> None:
    stale = workspace.write("MEMORY.md", "one", by=CALLER).version
    workspace.write("MEMORY.md", "two", by=CALLER)
    assert stale is not None
    with pytest.raises(Conflict) as caught:
        workspace.write("MEMORY.md", "three", by=CALLER, expect=stale)
    assert caught.value.actual == version_of(b"two")
    assert workspace.read("MEMORY.md").text == "two"
    with pytest.raises(AlreadyExists):
        workspace.write("MEMORY.md", "new", by=CALLER, expect=ABSENT)
    with pytest.raises(Conflict):
        workspace.delete("MEMORY.md", by=CALLER, expect=stale)


def test_a_deleted_file_is_still_in_the_history(workspace: Workspace, root: Path) -> None:
    before = workspace.write("notes/a.md", "text", by=CALLER).revision
    workspace.delete("notes/a.md", by=CALLER)
    assert not (root / "notes").exists()
    assert before is not None
    assert workspace.read("notes/a.md", view=before).text == "text"
    assert workspace.log()[0].subject == "notes/a.md: deleted"
    with pytest.raises(NotFound):
        workspace.delete("notes/a.md", by=CALLER)


def test_a_manual_edit_becomes_a_revision_of_the_person_before_the_next_write(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "one\n", by=AGENT)
    (root / "MEMORY.md").write_text("one\nby hand\n")
    workspace.write("MEMORY.md", "two\n", by=AGENT)
    assert authors(workspace) == ["helper", "owner", "helper"]
    edit = workspace.log()[1]
    assert edit.trailers["Source"] == "edit"
    assert workspace.read("MEMORY.md", view=edit.id).text == "one\nby hand\n"


def test_a_precondition_is_checked_against_a_manual_edit(workspace: Workspace, root: Path) -> None:
    version = workspace.write("MEMORY.md", "one", by=AGENT).version
    assert version is not None
    (root / "MEMORY.md").write_text("by hand")
    with pytest.raises(Conflict):
        workspace.write("MEMORY.md", "two", by=AGENT, expect=version)
    assert authors(workspace) == ["owner", "helper"]
    assert (root / "MEMORY.md").read_text() == "by hand"


def test_commit_edits_finds_files_created_changed_and_removed_by_hand(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("keep.md", "keep", by=CALLER)
    workspace.write("gone.md", "gone", by=CALLER)
    (root / "gone.md").unlink()
    (root / "keep.md").write_text("changed")
    (root / "notes").mkdir()
    (root / "notes/new.md").write_text("new")
    tip = workspace.edits.commit()
    newest = workspace.log()[0]
    assert newest.id == tip
    assert newest.author == "owner"
    assert set(newest.paths) == {"gone.md", "keep.md", "notes/new.md"}
    assert workspace.edits.commit() == tip


def test_files_that_cannot_be_tracked_are_listed_as_problems_and_left_alone(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "x", by=CALLER)
    (root / "bad:name.md").write_text("kept on disk")
    (root / "memory.md").write_text("twin")
    (root / "link.md").symlink_to("/etc/passwd")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]")
    workspace.edits.commit()
    problems = {problem.path: problem.kind for problem in workspace.tree.scan().problems}
    assert problems == {
        "bad:name.md": "bad_name",
        "memory.md": "twin",
        "link.md": "not_a_file",
        ".git/config": "bad_name",
    }
    assert workspace.files() == ["MEMORY.md"]
    assert workspace.files(view=workspace.history.tip() or "") == ["MEMORY.md"]
    assert (root / "bad:name.md").read_text() == "kept on disk"


@pytest.mark.parametrize("path", ["memory.md", "NOTES/b.md"])
def test_a_case_twin_of_an_existing_name_is_refused(workspace: Workspace, path: str) -> None:
    workspace.write("MEMORY.md", "x", by=CALLER)
    workspace.write("notes/a.md", "x", by=CALLER)
    with pytest.raises(AlreadyExists):
        workspace.write(path, "y", by=CALLER)


def test_a_link_planted_in_the_tree_is_not_followed(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (root / "link.md").symlink_to(secret)
    (root / "hard.md").hardlink_to(secret)
    (root / "dir").symlink_to(tmp_path)
    for path in ("link.md", "hard.md", "dir/secret"):
        with pytest.raises(Refused):
            workspace.read(path)
        with pytest.raises(Refused):
            workspace.write(path, "overwritten", by=CALLER)
    assert secret.read_text() == "secret"


def test_a_file_over_the_quota_is_refused_before_anything_is_written(
    open_workspaces: Callable[[], Workspaces],
) -> None:
    workspace = open_workspaces().create("small", config={"quota": {"fileBytes": 10}})
    workspace.write("a.md", "x" * 10, by=CALLER)
    with pytest.raises(OverLimit):
        workspace.write("a.md", "x" * 11, by=CALLER)
    assert workspace.read("a.md").text == "x" * 10


def test_a_crash_between_file_and_revision_is_attributed_to_the_writer(
    workspace: Workspace, root: Path, home: Home
) -> None:
    workspace.write("MEMORY.md", "one\n", by=CALLER)
    note = {
        "who": "helper",
        "pid": 1,
        "intent": {
            "author": {
                "name": "helper",
                "id": "agent_1",
                "source": "turn",
                "trailers": {"Turn": "t1"},
            },
            "paths": ["MEMORY.md"],
        },
    }
    home.lock(workspace.namespace).write_text(json.dumps(note))
    (root / "MEMORY.md").write_text("one\nby the agent\n")
    (root / "TASKS.md").write_text("by hand\n")
    workspace.edits.commit()
    by_author = {revision.author: revision for revision in workspace.log()}
    assert by_author["helper"].paths == ("MEMORY.md",)
    assert by_author["helper"].trailers["Turn"] == "t1"
    assert by_author["owner"].paths == ("TASKS.md",)


def test_a_half_written_intent_is_ignored(workspace: Workspace, home: Home) -> None:
    home.lock(workspace.namespace).write_text('{"who": "x", "pid"')
    assert workspace.write("MEMORY.md", "x", by=CALLER).revision is not None


def test_a_timeout_for_the_writer_lock_names_the_lock_holder(
    workspace: Workspace, home: Home
) -> None:
    lock = WriterLock(home.lock(workspace.namespace))
    with lock.hold("a long command"), pytest.raises(WorkspaceBusy) as caught:  # noqa: SIM117
        with lock.hold("me", wait_s=0.05):
            pass
    assert str(caught.value) == (
        f"the workspace is in use by a long command (process {os.getpid()})"
    )
    assert workspace.write("MEMORY.md", "x", by=CALLER).revision is not None


def test_no_conditional_write_of_many_threads_is_lost(
    open_workspaces: Callable[[], Workspaces],
) -> None:
    open_workspaces().create("shared").write("n.md", "", by=CALLER)
    failures: list[BaseException] = []

    def append(name: str) -> None:
        workspace = open_workspaces().get("shared")
        try:
            for number in range(10):
                while True:
                    file = workspace.read("n.md")
                    line = f"{name} {number}\n"
                    try:
                        workspace.write("n.md", file.text + line, by=CALLER, expect=file.version)
                    except Conflict:
                        continue
                    break
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not failures
    workspace = open_workspaces().get("shared")
    assert len(workspace.read("n.md").text.splitlines()) == 40
    assert len(workspace.log(limit=100)) == 41


@pytest.mark.parametrize(("field", "maximum"), [("bytes", 2**40), ("files", 1_000_000)])
def test_a_quota_past_its_maximum_is_refused(
    open_workspaces: Callable[[], Workspaces], field: str, maximum: int
) -> None:
    workspaces = open_workspaces()
    with pytest.raises(Refused) as refused:
        workspaces.create("huge", config={"quota": {field: 10**300}})
    assert refused.value.field == f"config.quota.{field}"
    assert refused.value.value == 10**300
    assert str(maximum) in refused.value.rule
    record = workspaces.create("notes", config={"quota": {field: maximum}}).record
    with pytest.raises(Refused):
        workspaces.patch(record.id, {"config": {"quota": {field: maximum + 1}}})


@pytest.mark.parametrize("field", ["bytes", "files"])
def test_a_stored_quota_above_the_maximum_remains_valid(
    home: Home, clock: ManualClock, field: str
) -> None:
    records = MemoryRecords(clock)
    owner = default_owner(records, clock)
    workspaces = Workspaces(owner, home, records, clock, template=lambda _: {})
    record = workspaces.create("notes").record
    stored = Catalog(WORKSPACES, partition_of(owner.account_id), records, clock)
    stored.patch(record.id, {"config": {"quota": {field: 10**300}}})
    changed = workspaces.patch(record.id, {"description": "as it was"})
    assert changed.as_json()["config"]["quota"] == {field: 10**300}
    opened = workspaces.get(record.id)
    opened.write("a.md", "x", by=CALLER)
    assert opened.read("a.md").text == "x"
