from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.errors import NotFound, Refused
from workspaces.history.revert import merge_lines
from workspaces.workspace.workspace import Workspace


def test_restoring_a_file_creates_a_revision_with_a_restored_trailer(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    workspace.write("MEMORY.md", "two\n", by=AGENT)
    assert first is not None
    workspace.restore("MEMORY.md", first[:8], by=CALLER)
    assert workspace.read("MEMORY.md").text == "one\n"
    newest = workspace.log()[0]
    assert (newest.author, newest.trailers["Restored"]) == ("caller", first)
    assert workspace.restore("MEMORY.md", first, by=CALLER).revision is None


def test_restoring_a_file_from_before_its_creation_removes_the_file(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    workspace.write("notes/a.md", "new\n", by=AGENT)
    assert first is not None
    workspace.restore("notes/a.md", first, by=CALLER)
    assert workspace.files() == ["MEMORY.md"]
    with pytest.raises(NotFound):
        workspace.restore("notes/a.md", first, by=CALLER)


def test_a_deleted_file_can_be_restored(workspace: Workspace) -> None:
    first = workspace.write("notes/a.md", b"\x00\xff", by=AGENT).revision
    workspace.delete("notes/a.md", by=AGENT)
    assert first is not None
    workspace.restore("notes/a.md", first, by=CALLER)
    assert workspace.read("notes/a.md").data == b"\x00\xff"


def test_a_manual_edit_is_committed_before_a_restore(workspace: Workspace, root: Path) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    (root / "MEMORY.md").write_text("by hand\n")
    assert first is not None
    workspace.restore("MEMORY.md", first, by=CALLER)
    edit = workspace.log()[1]
    assert workspace.read("MEMORY.md", view=edit.id).text == "by hand\n"


def test_reverting_a_revision_leaves_later_changes_alone(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "a\nb\nc\nd\ne\n", by=AGENT)
    bad = workspace.write("MEMORY.md", "a\nB\nc\nd\ne\n", by=AGENT).revision
    workspace.write("MEMORY.md", "zero\na\nB\nc\nd\ne\nlast\n", by=AGENT)
    assert bad is not None
    made = workspace.revert(bad, by=CALLER)
    assert workspace.read("MEMORY.md").text == "zero\na\nb\nc\nd\ne\nlast\n"
    newest = workspace.log()[0]
    assert (newest.id, newest.trailers["Reverted"]) == (made, bad)
    assert workspace.revert(bad, by=CALLER) is None


def test_reverting_a_revision_of_several_files_creates_a_single_revision(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("keep.md", "keep\n", by=AGENT)
    workspace.write("gone.md", "gone\n", by=AGENT)
    (root / "keep.md").write_text("changed\n")
    (root / "gone.md").unlink()
    (root / "new.md").write_text("new\n")
    edit = workspace.commit_edits()
    assert edit is not None
    made = workspace.revert(edit, by=CALLER)
    assert workspace.files() == ["gone.md", "keep.md"]
    assert workspace.read("keep.md").text == "keep\n"
    newest = workspace.log()[0]
    assert (newest.id, set(newest.paths)) == (made, {"gone.md", "keep.md", "new.md"})
    assert workspace.revert(edit, by=CALLER) is None


def test_the_first_revision_can_be_reverted(workspace: Workspace) -> None:
    first = workspace.write("MEMORY.md", "one\n", by=AGENT).revision
    assert first is not None
    workspace.revert(first, by=CALLER)
    assert workspace.files() == []


def test_a_revert_of_lines_changed_later_is_refused_and_writes_nothing(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "a\nb\n", by=AGENT)
    workspace.write("TASKS.md", "1\n", by=AGENT)
    (root / "MEMORY.md").write_text("a\nB\n")
    (root / "TASKS.md").write_text("2\n")
    bad = workspace.commit_edits()
    tip = workspace.write("TASKS.md", "3\n", by=AGENT).revision
    assert bad is not None
    with pytest.raises(Refused) as caught:
        workspace.revert(bad, by=CALLER)
    undone = f"Cannot undo {bad[:7]}: later changes touch the same lines of TASKS.md."
    assert str(caught.value) == undone
    assert "harness restore" in (caught.value.remedy or "")
    assert workspace.tip() == tip
    assert workspace.read("MEMORY.md").text == "a\nB\n"


@pytest.mark.parametrize("view", ["main", "--all", "0123456789"])
def test_an_invalid_revision_is_neither_restored_nor_reverted(
    workspace: Workspace, view: str
) -> None:
    workspace.write("MEMORY.md", "one\n", by=AGENT)
    for act in (workspace.revert, lambda v, by: workspace.restore("MEMORY.md", v, by=by)):
        with pytest.raises((Refused, NotFound)):
            act(view, by=CALLER)


UNIQUE = st.lists(st.integers(0, 99), unique=True, max_size=12)


@given(UNIQUE, UNIQUE, UNIQUE)
def test_a_successful_line_merge_holds_the_additions_of_both_sides(
    base: list[int], ours: list[int], theirs: list[int]
) -> None:
    def text(lines: list[int]) -> bytes:
        return b"".join(b"%d\n" % line for line in lines)

    found = merge_lines(text(base), text(ours), text(theirs))
    if found is None:
        return
    lines = {int(line) for line in found.split()}
    assert set(ours) - set(base) <= lines
    assert set(theirs) - set(base) <= lines


@given(UNIQUE, UNIQUE)
def test_a_line_merge_with_an_unchanged_side_is_the_other_side(
    base: list[int], other: list[int]
) -> None:
    def text(lines: list[int]) -> bytes:
        return b"".join(b"%d\n" % line for line in lines)

    assert merge_lines(text(base), text(base), text(other)) == text(other)
    assert merge_lines(text(base), text(other), text(base)) == text(other)
