"""The scan of a tree reuses the results of the scan before, with the same outcome as a fresh scan."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from workspaces.clock import ManualClock, SystemClock
from workspaces.ids import version_of
from workspaces.storage.blobs import BlobName
from workspaces.tree.directory import FileBlobs
from workspaces.tree.in_memory import MemoryTree
from workspaces.tree.scan import GLANCE_S, Tree, TreeScan
from workspaces.workspace_record import Quota

CONFLICT = "notes/a.conflict-0123456789ab.md"
NAMES = (
    "MEMORY.md",
    CONFLICT,
    "notes/a.md",
    "notes/A.md",
    "notes/b.md",
    "notes/.b.md.swp",
    "con",
    "x.md~",
)
QUOTA = Quota(bytes=40, files=4, file_bytes=40)


class Counted(MemoryTree):
    reads = 0

    def examine(self, name: BlobName) -> tuple[bytes, os.stat_result]:
        self.reads += 1
        return super().examine(name)


def seen(tree: Tree) -> object:
    return tree.files, sorted(tree.problems, key=str), tree.scratch, tree.bytes


@pytest.mark.parametrize("seed", range(200))
def test_a_scan_that_reuses_earlier_results_equals_a_fresh_scan(seed: int) -> None:
    print(f"seed {seed}")
    randomly = random.Random(seed)
    clock = ManualClock()
    tree = MemoryTree(clock, grain_s=0.5)
    remembering = TreeScan(tree, QUOTA, clock)
    for _ in range(40):
        name = randomly.choice(NAMES)
        match randomly.randrange(5):
            case 0:
                tree.put(name, randomly.randbytes(randomly.randrange(12)))
            case 1 if name in tree.files:
                tree.change(tree.files[name], randomly.randbytes(3))
            case 2 if name in tree.files:
                del tree.files[name]
            case 3 if name in tree.files:
                tree.files[randomly.choice(NAMES)] = tree.files.pop(name)
            case _:
                clock.advance(randomly.choice([0.1, 1, 5]))
        for _ in range(randomly.randrange(3)):
            assert seen(remembering.scan()) == seen(TreeScan(tree, QUOTA, clock).scan())


def test_an_unchanged_file_is_not_read_again_and_a_caller_cannot_change_the_cached_scan() -> None:
    clock = ManualClock()
    tree = Counted(clock)
    for number in range(5):
        tree.put(f"notes/{number}.md", b"text\n")
    clock.advance(10)
    scan = TreeScan(tree, Quota(), clock)
    first = seen(scan.scan())
    for _ in range(2):
        found = scan.scan()
        assert seen(found) == first
        found.files.clear()
        found.problems.clear()
    assert tree.reads == 5


class Overtaken(MemoryTree):
    """Right after each walk somebody puts another file in the place of one, and then the first one back."""

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        yield from super().walk()
        self.first = self.files["a.md"]
        self.put("a.md", b"another\n")
        self.files["a.md"].changed_ns = self.first.changed_ns


def test_a_file_put_back_after_a_scan_read_its_replacement_is_read_again() -> None:
    clock = ManualClock()
    tree = Overtaken(clock)
    tree.put("a.md", b"the first\n")
    clock.advance(10)
    scan = TreeScan(tree, Quota(), clock)
    assert scan.scan().files["a.md"].version == version_of(b"another\n")
    tree.files["a.md"] = tree.first
    tree.walk = partial(MemoryTree.walk, tree)
    assert scan.scan().files["a.md"].version == version_of(b"the first\n")


def test_a_glance_sees_other_files_at_once_and_writes_in_place_within_a_minute(
    tmp_path: Path,
) -> None:
    clock = ManualClock(SystemClock().now() + timedelta(seconds=10))  # nothing is young
    root, staging = tmp_path / "tree", tmp_path / "staging"
    (root / "notes").mkdir(parents=True)
    staging.mkdir()
    note = root / "notes" / "a.md"
    note.write_text("one\n")
    scan = TreeScan(FileBlobs(root, staging), Quota(), clock)
    scan.scan()

    def glanced() -> dict[str, int]:
        return {path: state.size for path, state in scan.glance().files.items()}

    assert glanced() == {"notes/a.md": 4}
    with note.open("a") as file:
        file.write("two\n")
    assert glanced() == {"notes/a.md": 4}
    clock.advance(GLANCE_S)
    assert glanced() == {"notes/a.md": 8}
    (root / "notes" / "b.md").write_text("new\n")
    assert glanced() == {"notes/a.md": 8, "notes/b.md": 4}
    note.unlink()
    assert glanced() == {"notes/b.md": 4}
    (root / "c.md").write_text("at the top\n")
    assert set(glanced()) == {"notes/b.md", "c.md"}
