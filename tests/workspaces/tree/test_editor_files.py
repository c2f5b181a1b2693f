from __future__ import annotations

from pathlib import Path

import pytest

from tests.workspaces.conftest import AGENT, CALLER
from workspaces.tree.editor_files import is_editor_file
from workspaces.workspace.workspace import Workspace


@pytest.mark.parametrize(
    "name",
    [
        ".MEMORY.md.swp",
        "notes/.a.md.swo",
        ".a.swx",
        "MEMORY.md~",
        ".MEMORY.md.un~",
        "notes/a.md.~1~",
        "#MEMORY.md#",
        ".#MEMORY.md",
        ".MEMORY.md.kate-swp",
        ".~lock.plan.odt#",
    ],
)
def test_editor_files_are_recognised_by_their_names(name: str) -> None:
    assert is_editor_file(name)


@pytest.mark.parametrize(
    "name", ["MEMORY.md", "notes/#1.md", "C#.md", "~", ".profile", "a.swp", "x~/a.md", ".swp"]
)
def test_names_that_resemble_editor_files_are_ordinary_files(name: str) -> None:
    assert not is_editor_file(name)


def test_editor_files_stay_in_the_tree_and_are_in_no_revision(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md", "# Memory\n", by=CALLER)
    tip = workspace.history.tip()
    (root / ".MEMORY.md.swp").write_bytes(b"b0VIM 9.0")
    (root / "MEMORY.md~").write_text("# Memory\n")
    (root / ".#MEMORY.md").symlink_to("ann@laptop.4711:1795000000")
    assert workspace.edits.commit() == tip
    tree = workspace.tree.scan()
    assert tree.scratch == [".#MEMORY.md", ".MEMORY.md.swp", "MEMORY.md~"]
    assert list(tree.files) == ["MEMORY.md"]
    assert tree.problems == []
    assert (root / ".MEMORY.md.swp").exists()


def test_a_file_written_through_the_workspace_is_tracked_despite_an_editor_file_name(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md~", "kept\n", by=CALLER)
    tip = workspace.history.tip()
    assert workspace.edits.commit() == tip  # not taken for deleted
    (root / "MEMORY.md~").write_text("kept, and changed by hand\n")
    workspace.edits.commit()
    assert workspace.log("MEMORY.md~")[0].author == "owner"
    assert workspace.tree.scan().scratch == []


def test_an_editor_file_is_committed_before_a_write_replaces_the_file(
    workspace: Workspace, root: Path
) -> None:
    (root / "a.md~").write_text("unsaved thoughts\n")
    workspace.write("a.md~", "mine\n", by=AGENT)
    mine, theirs = workspace.log("a.md~")
    assert (mine.author, theirs.author) == ("helper", "owner")
    assert workspace.read("a.md~", view=theirs.id).text == "unsaved thoughts\n"
