from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.live_tree import A, LiveTreeConformance, label
from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.localfs import staging
from workspaces.tree.directory import FileBlobs
from workspaces.tree.in_memory import MemoryTree
from workspaces.tree.port import displaced_by


class TestFileBlobs(LiveTreeConformance):
    @pytest.fixture
    def tree(self, files_tree: FileBlobs) -> FileBlobs:
        return files_tree


class TestFileBlobsWithoutExchange(TestFileBlobs):
    """On a file system that cannot exchange two names in one step."""

    @pytest.fixture(autouse=True)
    def _no_exchange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(staging, "exchange", lambda *_: False)


class TestMemoryTree(LiveTreeConformance):
    @pytest.fixture
    def tree(self) -> MemoryTree:
        return MemoryTree(ManualClock())


@pytest.fixture
def files_tree(tmp_path: Path) -> FileBlobs:
    for name in ("tree", "staging"):
        (tmp_path / name).mkdir()
    return FileBlobs(tmp_path / "tree", tmp_path / "staging")


def test_a_late_write_through_an_open_file_reaches_the_displaced_file(
    tmp_path: Path, files_tree: FileBlobs
) -> None:
    tree = files_tree
    tree.write(A, b"old\n", expect=ABSENT)
    with (tmp_path / "tree" / A).open("ab") as shell:
        tree.prepare({label(1): b"new\n"})
        tree.exchange(label(1), A)
        shell.write(b"appended\n")
    assert tree.look(label(1)) == b"old\nappended\n"
    assert tree.read(A).data == b"new\n"


def test_discarding_staged_files_leaves_nothing_in_the_staging_directory(
    tmp_path: Path, files_tree: FileBlobs
) -> None:
    def left() -> list[str]:
        return sorted(file.name for file in (tmp_path / "staging").iterdir())

    staged = [files_tree.stage(b"x") for _ in range(3)]
    assert left() == sorted(staged)
    files_tree.discard(staged[0])
    assert left() == sorted(staged[1:])
    files_tree.unstage()
    assert left() == []


@pytest.mark.parametrize("count", [1, staging.FLUSHED_AT_ONCE])
def test_staged_files_are_flushed_when_confirmed(
    files_tree: FileBlobs, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(staging, "flush_all", lambda _fd: flushed.append("all") or True)
    monkeypatch.setattr(os, "fsync", lambda _fd: flushed.append("one"))
    staged = [files_tree.stage(b"%d" % number) for number in range(count)]
    assert flushed == []
    files_tree.confirm(staged)
    assert flushed == ["one" if count == 1 else "all"]


@pytest.mark.parametrize(
    "name", ["new-1234", "out:", "out:a:b", "out:a:b:c:", "out:a:b:c:..:x", ".lock"]
)
def test_a_malformed_label_is_not_recognised(name: str) -> None:
    assert displaced_by(name) is None  # type: ignore[arg-type]


def test_a_displaced_file_is_never_removed_by_age(tmp_path: Path, files_tree: FileBlobs) -> None:
    tree = files_tree
    tree.prepare({label(1): b"an edit"})
    os.utime(tmp_path / "staging" / label(1), (0, 0))
    again = FileBlobs(tmp_path / "tree", tmp_path / "staging")
    assert again.look(label(1)) == b"an edit"
