"""Trees that no record names: found, and moved to another namespace."""

from __future__ import annotations

from pathlib import Path

from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.history.history import History
from workspaces.home.layout import Home
from workspaces.home.lost_records import move_tree, stored_namespaces
from workspaces.ids import Namespace, namespace
from workspaces.revision import Author
from workspaces.tree.directory import FileBlobs

OLD, NEW = namespace("acct_1", "ws_1"), namespace("acct_2", "ws_2")
BY = Author("Ada", "usr_1", "api")


def prepared(root: Path) -> Home:
    home = Home(root)
    home.prepare()
    return home


def test_only_trees_and_histories_are_namespaces(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    home.prepare_namespace(OLD)
    (home.trees / ".self-test-1f").mkdir()
    (home.root / "history" / f"{NEW}.git").mkdir()
    (home.root / "history" / f"{Namespace('fs-1')}.git.again").mkdir()
    (home.trees / "fs-file").write_text("no directory")
    assert list(stored_namespaces(home)) == sorted([OLD, NEW])


def test_a_moved_tree_brings_its_history_and_displaced_files(tmp_path: Path) -> None:
    home = prepared(tmp_path / "home")
    home.prepare_namespace(OLD)
    clock = ManualClock()
    history = History.create(home.history(OLD), clock)
    history.record({"a.md": b"a"}, BY)  # type: ignore[dict-item]
    FileBlobs(home.tree(OLD), home.staging(OLD)).write("b.md", b"b", expect=ABSENT)
    (home.staging(OLD) / "out:1").write_text("displaced")
    move_tree(home, OLD, NEW, clock)
    assert list(stored_namespaces(home)) == [NEW]
    assert (home.tree(NEW) / "b.md").read_bytes() == b"b"
    assert not (home.tree(NEW) / "a.md").exists(), "a deletion by hand was undone"
    assert (home.staging(NEW) / "out:1").read_text() == "displaced"
    assert len(History(home.history(NEW), clock).log(limit=5)) == 1
