"""A scan remembers the scan before it; nobody can tell from what it finds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial

import pytest

from workspaces.clock import ManualClock
from workspaces.ids import version_of
from workspaces.storage.blobs import BlobName
from workspaces.tree.in_memory import MemoryTree
from workspaces.tree.scan import Tree, TreeScan
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
def test_a_scan_that_remembers_finds_what_one_that_does_not_finds(seed: int) -> None:
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


def test_what_nobody_touched_is_not_read_again_and_what_a_reader_does_to_a_scan_is_its_own() -> (
    None
):
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


def test_a_file_that_comes_back_after_another_was_read_in_its_place_is_read_again() -> None:
    clock = ManualClock()
    tree = Overtaken(clock)
    tree.put("a.md", b"the first\n")
    clock.advance(10)
    scan = TreeScan(tree, Quota(), clock)
    assert scan.scan().files["a.md"].version == version_of(b"another\n")
    tree.files["a.md"] = tree.first
    tree.walk = partial(MemoryTree.walk, tree)
    assert scan.scan().files["a.md"].version == version_of(b"the first\n")
