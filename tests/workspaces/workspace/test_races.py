"""Races between the workspace and other programs, forced to happen at the critical moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workspaces.actors import over
from tests.workspaces.conftest import AGENT
from workspaces.errors import Conflict, NotFound, Refused
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.localfs.safe_open import SafeRoot
from workspaces.storage.blobs import BlobName, Expect
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace


class Raced(FileBlobs):
    """An editor saves right after a conditional write has looked."""

    saved: str | None = None

    def _check(self, name: BlobName, expect: Expect) -> None:
        super()._check(name, expect)
        if self.saved is not None:
            saved, self.saved = self.saved, None
            with self._tree.directory("") as root:
                temporary = Path(f"/proc/self/fd/{root}") / "edited.tmp"
                temporary.write_text(saved)
                temporary.rename(Path(f"/proc/self/fd/{root}") / name)


def test_an_editor_save_between_the_precondition_check_and_the_rename_is_not_lost(
    workspace: Workspace, home: Home
) -> None:
    seen = workspace.write("a.md", "one\n", by=AGENT).version
    assert seen is not None
    raced = Raced(home.tree(workspace.namespace), home.staging(workspace.namespace))
    workspace = over(workspace, home, raced)
    raced.saved = "by hand\n"
    with pytest.raises(Conflict):
        workspace.write("a.md", "two\n", by=AGENT, expect=seen)
    workspace.edits.commit()
    texts = [workspace.read("a.md", view=revision.id).text for revision in workspace.log("a.md")]
    assert "by hand\n" in texts


class Unlinked(SafeRoot):
    """The second link that was opened is gone before anyone can count the links."""

    def _opened_file(self, directory: int, leaf: str) -> int:
        fd = super()._opened_file(directory, leaf)
        os.unlink(leaf, dir_fd=directory)
        return fd


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_a_hard_link_removed_before_its_links_are_counted_is_not_read(
    tmp_path: Path, openat2: bool
) -> None:
    tree, secret = tmp_path / "tree", tmp_path / "secret"
    tree.mkdir()
    secret.write_text("secret")
    (tree / "hard.md").hardlink_to(secret)
    with pytest.raises(NotFound):
        Unlinked(tree, openat2=openat2).read("hard.md", bytes_max=100)


def test_a_read_of_a_file_replaced_meanwhile_returns_the_old_bytes(tmp_path: Path) -> None:
    class Replaced(SafeRoot):
        def _opened_file(self, directory: int, leaf: str) -> int:
            fd = super()._opened_file(directory, leaf)
            (tmp_path / "new").write_text("new")
            (tmp_path / "new").rename(tmp_path / leaf)
            return fd

    (tmp_path / "a.md").write_text("old")
    assert Replaced(tmp_path).read("a.md", bytes_max=100)[0] == b"old"


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_a_directory_replaced_between_reads_is_opened_again_and_a_link_is_refused(
    tmp_path: Path, openat2: bool
) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for directory in (tree / "n", outside):
        directory.mkdir(parents=True)
        (directory / "a.md").write_text(f"{directory.name}/a")
    (outside / "b.md").write_text("secret")
    with SafeRoot(tree, openat2=openat2).reading(bytes_max=100) as read:
        assert read("n/a.md")[0] == b"n/a"
        (tree / "n").rename(tree / "gone")
        (tree / "n").mkdir()
        (tree / "n/b.md").write_text("new")
        assert read("n/b.md")[0] == b"new"
        (tree / "n").rename(tree / "gone too")
        (tree / "gone too/b.md").unlink()
        (tree / "n").symlink_to(outside)
        with pytest.raises(Refused):
            read("n/b.md")
        with pytest.raises(Refused):
            read("n/a.md")


def test_a_temporary_file_removed_during_a_scan_hides_no_other_file(
    workspace: Workspace, root: Path
) -> None:
    """An editor's swap files come and go; the scan finds the files that stay, every time."""
    names = [f"{number:03}.md" for number in range(100)]
    for name in names:
        (root / name).write_text("x")
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(20):
                (root / f"~{number}.swp").write_text("")
            for number in range(20):
                (root / f"~{number}.swp").unlink()

    editor = threading.Thread(target=come_and_go)
    editor.start()
    try:
        for _ in range(200):
            assert workspace.files() == names
    finally:
        stop.set()
        editor.join(timeout=60)


def test_a_case_twin_made_by_hand_does_not_replace_the_file_in_the_history(
    workspace: Workspace, root: Path
) -> None:
    workspace.write("memory.md", "one\n", by=AGENT)
    (root / "MEMORY.md").write_text("the twin\n")
    (root / "memory.md").write_text("one\nby hand\n")
    tip = workspace.edits.commit()
    assert workspace.read("memory.md", view=tip or "").text == "one\nby hand\n"
    assert [problem.path for problem in workspace.tree.scan().problems] == ["MEMORY.md"]


def test_files_beyond_the_quota_do_not_replace_a_file_in_the_history(
    open_workspaces: Callable[[], Workspaces],
) -> None:
    workspace = open_workspaces().create("small", config={"quota": {"files": 3}})
    workspace.write("z.md", "one\n", by=AGENT)
    for name in "abc":
        (workspace.root / f"{name}.md").write_text("flood\n")
    (workspace.root / "z.md").write_text("one\nby hand\n")
    tip = workspace.edits.commit()
    assert workspace.read("z.md", view=tip or "").text == "one\nby hand\n"
    assert workspace.files() == ["a.md", "b.md", "z.md"]
    assert [problem.path for problem in workspace.tree.scan().problems] == ["c.md"]
