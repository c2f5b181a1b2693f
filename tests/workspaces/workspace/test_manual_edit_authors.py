"""The author of a manual edit after a failed write, a killed writer, or a swapped file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.workspaces.actors import over
from tests.workspaces.conftest import AGENT, CALLER
from workspaces.coordination.writer_lock import Intent
from workspaces.errors import AlreadyExists, Conflict, Refused, Unavailable
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.storage.blobs import BlobName, Expect, Token
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace


class Interrupted(FileBlobs):
    """A tree in which something happens, or fails, at the moment of a write."""

    def write(self, name: BlobName, data: bytes, *, expect: Expect) -> Token:
        self.before_write()
        return super().write(name, data, expect=expect)

    def before_write(self) -> None:
        """What happens."""


Opened = tuple[Workspace, Interrupted]


@pytest.fixture
def opened(open_workspaces: Callable[[], Workspaces], home: Home) -> Opened:
    workspace = open_workspaces().create("notes")
    tree = Interrupted(home.tree(workspace.namespace), home.staging(workspace.namespace))
    return over(workspace, home, tree), tree


@pytest.fixture
def workspace(opened: Opened) -> Workspace:
    return opened[0]


@pytest.fixture
def interrupted(opened: Opened) -> Interrupted:
    return opened[1]


def leave_behind(home: Home, workspace: Workspace, intent: Intent) -> None:
    """The lock file of a holder that was killed."""
    note = {"who": "the dead", "pid": 1, "intent": asdict(intent)}
    home.lock(workspace.namespace).write_text(json.dumps(note))


def authors_of(workspace: Workspace, path: str) -> list[str]:
    """Newest first."""
    return [revision.author for revision in workspace.log(path)]


def test_an_edit_after_an_agent_write_lost_to_an_editor_belongs_to_the_person(
    workspace: Workspace, root: Path, interrupted: Interrupted
) -> None:
    seen = workspace.write("MEMORY.md", "one\n", by=AGENT).version
    assert seen is not None
    interrupted.before_write = lambda: (root / "MEMORY.md").write_text("by hand\n") and None
    with pytest.raises(Conflict):
        workspace.write("MEMORY.md", "two\n", by=AGENT, expect=seen)
    (root / "MEMORY.md").write_text("by hand, later\n")
    workspace.edits.commit()
    assert authors_of(workspace, "MEMORY.md") == ["owner", "owner", "helper"]


def test_an_edit_after_a_failed_agent_write_belongs_to_the_person(
    workspace: Workspace, root: Path, interrupted: Interrupted
) -> None:
    def fail() -> None:
        raise Unavailable("'MEMORY.md'", "the disk is full")

    interrupted.before_write = fail
    with pytest.raises(Unavailable):
        workspace.write("MEMORY.md", "agent\n", by=AGENT)
    (root / "MEMORY.md").write_text("by hand\n")
    workspace.edits.commit()
    assert authors_of(workspace, "MEMORY.md") == ["owner"]


def test_a_write_that_the_disk_did_not_confirm_belongs_to_its_writer(
    workspace: Workspace, root: Path, interrupted: Interrupted
) -> None:
    def fail_late() -> None:
        (root / "MEMORY.md").write_text("agent\n")
        raise Unavailable("'MEMORY.md'", "the disk has not confirmed it")

    interrupted.before_write = fail_late
    with pytest.raises(Unavailable):
        workspace.write("MEMORY.md", "agent\n", by=AGENT)
    workspace.edits.commit()
    assert authors_of(workspace, "MEMORY.md") == ["helper"]


def test_a_file_that_existed_before_a_refused_planting_belongs_to_the_person(
    workspace: Workspace, root: Path
) -> None:
    (root / "b.md").write_text("by hand\n")
    with pytest.raises(AlreadyExists):
        workspace.plant({"a.md": b"planted", "b.md": b"planted"}, by=CALLER)
    assert not (root / "a.md").exists()
    workspace.edits.commit()
    assert authors_of(workspace, "b.md") == ["owner"]


@pytest.mark.parametrize("trick", ["link", "hard link", "fifo", "directory", "link above", "large"])
def test_a_swapped_file_of_a_killed_writer_does_not_block_the_next_write(
    workspace: Workspace, root: Path, home: Home, tmp_path: Path, trick: str
) -> None:
    workspace.write("notes/a.md", "one\n", by=AGENT)
    leave_behind(home, workspace, Intent(AGENT, (workspace.read("notes/a.md").path,)))
    swap_for(trick, root / "notes/a.md", tmp_path)
    assert workspace.write("other.md", "x", by=CALLER).revision is not None
    workspace.edits.commit()
    assert workspace.write("more.md", "x", by=CALLER).revision is not None


@pytest.mark.parametrize("trick", ["link", "hard link", "fifo", "directory", "link above", "large"])
def test_a_swapped_file_does_not_prevent_committing_manual_edits_of_other_files(
    workspace: Workspace, root: Path, tmp_path: Path, trick: str
) -> None:
    workspace.write("notes/a.md", "one\n", by=AGENT)
    (root / "by-hand.md").write_text("kept\n")
    swap_for(trick, root / "notes/a.md", tmp_path)
    tip = workspace.edits.commit()
    assert workspace.read("by-hand.md", view=tip or "").text == "kept\n"
    assert workspace.edits.commit() == tip


def swap_for(trick: str, file: Path, outside: Path) -> None:
    data = file.read_text()
    file.unlink()
    match trick:
        case "link":
            file.symlink_to("/etc/passwd")
        case "hard link":
            (outside / "other").write_text("other")
            file.hardlink_to(outside / "other")
        case "fifo":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case "link above":
            file.parent.rmdir()
            (outside / "notes").mkdir()
            (outside / "notes/a.md").write_text(data)
            file.parent.symlink_to(outside / "notes")
        case _:
            file.write_bytes(b"x" * 6 * 2**20)


def test_replacing_a_directory_by_a_file_is_committed_in_a_single_revision(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("notes/a.md", "one\n", by=AGENT)
    (root / "notes/a.md").unlink()
    (root / "notes").rmdir()
    (root / "notes").write_text("a file now\n")
    tip = workspace.edits.commit()
    assert workspace.files(view=tip or "") == ["notes"]
    assert workspace.edits.commit() == tip


def test_replacing_a_file_by_a_directory_is_committed_in_a_single_revision(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("notes", "a file\n", by=AGENT)
    (root / "notes").unlink()
    (root / "notes").mkdir()
    (root / "notes/a.md").write_text("one\n")
    tip = workspace.edits.commit()
    assert workspace.files(view=tip or "") == ["notes/a.md"]
    assert workspace.edits.commit() == tip


def test_an_intent_followed_by_leftover_bytes_in_the_lock_file_is_honoured(
    workspace: Workspace, root: Path, home: Home
) -> None:
    leave_behind(home, workspace, Intent(AGENT, None))
    with home.lock(workspace.namespace).open("a") as stream:
        stream.write('"paths": null}}')
    (root / "MEMORY.md").write_text("by the agent\n")
    workspace.edits.commit()
    assert authors_of(workspace, "MEMORY.md") == ["helper"]


@pytest.mark.parametrize(
    "note",
    [
        "[]",
        "7",
        '{"who": "x", "pid": 1, "intent": {"author": {"name": "x"}, "paths": null}}',
        '{"who": "x", "pid": 1, "intent": {"author": {"name": "x", "id": "y", "source": "api", '
        '"trailers": {}, "more": 1}, "paths": []}}',
        '{"who": "x", "pid": 1, "intent": 7}',
        '{"who": "x", "pid": 1, "intent": {"paths": ["../x"]}}',
        "\0\0\0\0",
    ],
)
def test_a_malformed_note_in_the_lock_file_is_ignored(
    workspace: Workspace, home: Home, note: str
) -> None:
    home.lock(workspace.namespace).write_text(note)
    assert workspace.write("MEMORY.md", "x", by=CALLER).revision is not None


def test_a_lone_surrogate_is_refused_before_anything_is_written(workspace: Workspace) -> None:
    with pytest.raises(Refused) as caught:
        workspace.write("MEMORY.md", "cut \ud83d", by=AGENT)
    assert caught.value.field == "content"
    assert workspace.history.tip() is None


def test_a_file_renamed_by_hand_is_logged_under_both_names(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("old.md", "some text\n" * 20, by=AGENT)
    (root / "old.md").rename(root / "new.md")
    workspace.edits.commit()
    assert set(workspace.log()[0].paths) == {"old.md", "new.md"}
