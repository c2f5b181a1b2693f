"""A scan remembers the scan before it; nobody can tell from what it finds."""

from __future__ import annotations

import random

import pytest

from workspaces.blobs import Blob, BlobName
from workspaces.clock import ManualClock
from workspaces.configuration import Quota
from workspaces.stores.memory_tree import MemoryTree
from workspaces.tree import Tree, TreeScan

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

    def read(self, name: BlobName) -> Blob:
        self.reads += 1
        return super().read(name)


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
