"""Finding and committing manual edits: quick for an unchanged tree, and never missing an edit."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.workspaces.conftest import CALLER
from workspaces.clock import ManualClock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import NotFound, Unavailable
from workspaces.home.layout import Home
from workspaces.paths import WorkspacePath
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace

MEMORY, NOTE = WorkspacePath("MEMORY.md"), "notes/a.md"
LATER = timedelta(seconds=60)


@pytest.fixture
def clock() -> ManualClock:
    """A minute ahead of all that is written in a test: none of it is young."""
    clock = ManualClock()
    clock.advance((datetime.now(UTC) + LATER - clock.now()).total_seconds())
    return clock


@pytest.fixture
def settled(workspace: Workspace) -> Workspace:
    for path in (MEMORY, NOTE, "notes/deep/b.md", "TASKS.md"):
        workspace.write(path, "one\n", by=CALLER)
    workspace.edits.commit()
    return workspace


def touched(root: Path, path: str) -> Path:
    """As if its last change were long ago: what is written to it next has another stamp for sure."""
    os.utime(root / path, (1, 1))
    return root / path


def write_again(root: Path) -> None:
    (root / "TASKS.md").write_text("two\n")


def write_as_long(root: Path) -> None:
    """Nothing but the time of the change tells."""
    (root / NOTE).write_text("two\n")
    os.utime(root / NOTE, (1, 1))


def make(root: Path) -> None:
    (root / "new.md").write_text("new\n")


def remove(root: Path) -> None:
    (root / NOTE).unlink()


def replace(root: Path) -> None:
    (root / "other").write_text("two\n")
    (root / "other").rename(root / NOTE)


def move(root: Path) -> None:
    (root / "notes").rename(root / "moved")


@pytest.mark.parametrize("change", [write_again, write_as_long, make, remove, replace, move])
def test_a_file_changed_since_the_last_scan_is_committed_as_a_manual_edit(
    settled: Workspace, root: Path, change: Callable[[Path], None]
) -> None:
    touched(root, NOTE)
    settled.edits.commit()
    before = settled.edits.commit()
    change(root)
    assert settled.edits.commit() != before
    assert settled.log()[0].trailers["Source"] == "edit"
    assert settled.edits.pending() == []


def test_committing_edits_of_an_unchanged_tree_does_not_wait_for_the_writer_lock(
    settled: Workspace, home: Home
) -> None:
    tip = settled.edits.commit()
    with WriterLock(home.lock(settled.namespace)).hold("a command"):
        assert settled.edits.commit(wait_s=0) == tip


def test_a_manual_edit_hidden_by_an_equal_timestamp_of_a_young_file_is_committed(
    workspace: Workspace, root: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance(-LATER.total_seconds())
    workspace.write(NOTE, "one\n", by=CALLER)
    workspace.edits.commit()
    stats = dict(FileBlobs(root, root.parent).walk())
    (root / NOTE).write_text("two\n")
    monkeypatch.setattr(FileBlobs, "walk", lambda _: iter(stats.items()))  # as of a coarse clock
    workspace.edits.commit()
    found = workspace.history.find(workspace.history.tip(), WorkspacePath(NOTE))
    assert found is not None
    assert workspace.history.read(found) == b"two\n"


def test_a_missing_history_is_not_reported_as_clean(settled: Workspace, home: Home) -> None:
    history = home.history(settled.namespace)
    history.rename(history.with_name("elsewhere"))
    with pytest.raises(Unavailable, match="missing"):
        settled.edits.commit()
    assert not settled.edits.is_clean(MEMORY, "notes", [])


def test_a_missing_tree_is_not_reported_as_clean(settled: Workspace, root: Path) -> None:
    settled.edits.commit()
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(NotFound):
        settled.edits.commit()
    assert not settled.edits.is_clean(MEMORY, "notes", [])


def test_read_only_permissions_are_repaired_although_no_byte_changed(
    settled: Workspace, root: Path
) -> None:
    settled.edits.commit()
    (root / NOTE).chmod(0o444)
    (root / "notes/deep").chmod(0o500)
    settled.edits.commit()
    if os.geteuid() == 0:
        assert (root / NOTE).stat().st_mode & 0o200
        assert (root / "notes/deep").stat().st_mode & 0o200


def add_note(root: Path) -> None:
    (root / "notes/deep/c.md").write_text("new\n")


def change_memory(root: Path) -> None:
    """Not even the time of the change tells."""
    status = (root / MEMORY).stat()
    (root / MEMORY).write_text("two\n")
    os.utime(root / MEMORY, ns=(status.st_atime_ns, status.st_mtime_ns))


def remove_memory(root: Path) -> None:
    (root / MEMORY).unlink()


@pytest.mark.parametrize(
    "change", [change_memory, remove_memory, write_as_long, add_note, remove, replace, move]
)
def test_the_clean_check_notices_manual_edits_in_the_given_file_and_directory(
    settled: Workspace, root: Path, change: Callable[[Path], None]
) -> None:
    touched(root, NOTE)
    settled.edits.commit()
    assert settled.edits.is_clean(MEMORY, "notes", [NOTE])
    change(root)
    assert not settled.edits.is_clean(MEMORY, "notes", [NOTE])
    settled.edits.commit()
    settled.edits.commit()
    assert settled.edits.is_clean(MEMORY, "notes", [])


def test_the_clean_check_ignores_manual_edits_outside_the_given_paths(
    settled: Workspace, root: Path
) -> None:
    settled.edits.commit()
    write_again(root)
    assert settled.edits.is_clean(MEMORY, "notes", [NOTE])
    assert settled.edits.pending() == ["TASKS.md"]


def test_a_scan_by_a_reader_does_not_make_a_manual_edit_clean(
    settled: Workspace, root: Path
) -> None:
    settled.edits.commit()
    (root / NOTE).write_text("changed\n")
    settled.tree.scan()
    assert settled.tree.scan() is settled.tree.scan()
    assert not settled.edits.is_clean(MEMORY, "notes", [NOTE])


def test_the_clean_check_notices_a_directory_created_later(
    workspace: Workspace, root: Path
) -> None:
    workspace.write(MEMORY, "one\n", by=CALLER)
    workspace.edits.commit()
    assert workspace.edits.is_clean(MEMORY, "notes", [])
    (root / "notes").mkdir()
    assert not workspace.edits.is_clean(MEMORY, "notes", [])
