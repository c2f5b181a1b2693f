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
def test_what_an_editor_keeps_for_itself_is_known_by_its_name(name: str) -> None:
    assert is_editor_file(name)


@pytest.mark.parametrize(
    "name", ["MEMORY.md", "notes/#1.md", "C#.md", "~", ".profile", "a.swp", "x~/a.md", ".swp"]
)
def test_what_merely_resembles_it_is_a_file(name: str) -> None:
    assert not is_editor_file(name)


def test_scratch_stays_where_it_is_and_is_in_no_revision(workspace: Workspace, root: Path) -> None:
    workspace.write("MEMORY.md", "# Memory\n", by=CALLER)
    tip = workspace.tip()
    (root / ".MEMORY.md.swp").write_bytes(b"b0VIM 9.0")
    (root / "MEMORY.md~").write_text("# Memory\n")
    (root / ".#MEMORY.md").symlink_to("ann@laptop.4711:1795000000")
    assert workspace.commit_edits() == tip
    tree = workspace.scan()
    assert tree.scratch == [".#MEMORY.md", ".MEMORY.md.swp", "MEMORY.md~"]
    assert list(tree.files) == ["MEMORY.md"]
    assert tree.problems == []
    assert (root / ".MEMORY.md.swp").exists()


def test_what_was_written_on_purpose_is_a_file_whatever_its_name(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("MEMORY.md~", "kept\n", by=CALLER)
    tip = workspace.tip()
    assert workspace.commit_edits() == tip  # not taken for deleted
    (root / "MEMORY.md~").write_text("kept, and changed by hand\n")
    workspace.commit_edits()
    assert workspace.log("MEMORY.md~")[0].author == "owner"
    assert workspace.scan().scratch == []


def test_scratch_that_is_overwritten_on_purpose_is_kept_first(
    workspace: Workspace, root: Path
) -> None:
    (root / "a.md~").write_text("unsaved thoughts\n")
    workspace.write("a.md~", "mine\n", by=AGENT)
    mine, theirs = workspace.log("a.md~")
    assert (mine.author, theirs.author) == ("helper", "owner")
    assert workspace.read("a.md~", view=theirs.id).text == "unsaved thoughts\n"
