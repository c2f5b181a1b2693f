"""What a history costs: making revisions, telling them, origins of lines, reading through the door."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from hashlib import sha1
from itertools import count
from pathlib import Path

from benchmarks.ratio import compare, report
from workspaces.accounts.account import default_owner
from workspaces.clock import SystemClock
from workspaces.history.history import History
from workspaces.history.line_origins import LineOrigins
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.storage.in_memory import MemoryRecords

AUTHOR = Author("helper", "agent_1", "turn", {"Conversation": "conv_1 c1"})
NOTE = WorkspacePath("notes0/7.md")
MEMORY = WorkspacePath("MEMORY.md")
BODY = b"- a line of a note, as long as such lines are\n" * 60


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        revisions(Path(place))
        diffs(Path(place))
        origins(Path(place))
        door(Path(place))


def revisions(place: Path) -> None:
    few, many, flat = (
        filled(place / f"{files}-{per_directory}.git", files, per_directory)
        for files, per_directory in ((50, 100), (10_000, 100), (10_000, 10_000))
    )
    ours, peer = compare(one_change(many), one_change(few), rounds=50)
    report("  a revision just after 10 000 files were made / 50", ours, peer, at_most=None)
    floor = Floor(place / "floor.git")
    for _ in range(50):  # as many as ours has behind it: both have made their directories
        floor.commit()
    ours, peer = compare(one_change(few), floor.commit, rounds=100)
    report("a revision of one file / the same objects and fsyncs by hand", ours, peer, at_most=1.5)
    ours, peer = compare(one_change(many), one_change(few), rounds=100)
    report("a revision among 10 000 files / among 50", ours, peer, at_most=1.3)
    ours, peer = compare(one_change(flat), one_change(few), rounds=20)
    report("  the same with all 10 000 in one directory", ours, peer, at_most=None)
    for history in (few, many):
        history.pack()
    ours, peer = compare(one_change(many), one_change(few), rounds=50)
    report("  10 000 files / 50, both packed", ours, peer, at_most=1.3)


def filled(directory: Path, files: int, per_directory: int) -> History:
    history = History.create(directory, SystemClock())
    names = (f"notes{n // per_directory}/{n % per_directory}.md" for n in range(files))
    history.record({WorkspacePath(name): name.encode() for name in names}, AUTHOR)
    return history


def one_change(history: History) -> Callable[[], object]:
    numbers = count()
    return lambda: history.record({NOTE: b"%d\n" % next(numbers) + BODY}, AUTHOR)


class Floor:
    """A note in a directory of fifty, its two trees, a commit and the branch: nothing else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count()
        (directory / "objects").mkdir(parents=True)
        (directory / "refs").mkdir()
        self._entries = b"".join(b"100644 %d.md\0" % n + b"x" * 20 for n in range(50))
        self._parent = b"0" * 40

    def commit(self) -> None:
        blob = self._object(b"blob", b"%d\n" % next(self._numbers) + BODY)
        notes = self._object(b"tree", self._entries + b"100644 7.md\0" + bytes.fromhex(blob))
        root = self._object(b"tree", b"40000 notes0\0" + bytes.fromhex(notes))
        head = f"tree {root}\nparent {self._parent.decode()}\nauthor a <a@a> 0 +0000\n"
        commit = self._object(b"commit", head.encode() + b"committer a <a@a> 0 +0000\n\nsubject\n")
        for name in {blob[:2], notes[:2], root[:2], commit[:2], ""}:
            fsync(self._directory / "objects" / name)
        self._parent = commit.encode()
        lock = self._directory / "refs" / "main.lock"
        write(lock, self._parent)
        lock.rename(self._directory / "refs" / "main")
        fsync(self._directory / "refs")

    def _object(self, kind: bytes, data: bytes) -> str:
        framed = b"%s %d\0%s" % (kind, len(data), data)
        name = sha1(framed, usedforsecurity=False).hexdigest()
        directory = self._directory / "objects" / name[:2]
        directory.mkdir(exist_ok=True)
        write(directory / "new", zlib.compress(framed, 1))
        (directory / "new").rename(directory / name[2:])
        return name


def write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o444)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def diffs(place: Path) -> None:
    directory = place / "diffs.git"
    history = History.create(directory, SystemClock())
    lines = [b"line %d\n" % n for n in range(200)]
    for number in range(500):
        lines[number % 200] = b"changed %d\n" % number
        history.record({MEMORY: b"".join(lines)}, AUTHOR)
    command = ["git", f"--git-dir={directory}", "log", "-p", "-20", "main", "--", MEMORY]
    ours, peer = compare(
        lambda: history.changes(path=MEMORY, limit=20),
        lambda: subprocess.run(command, check=True, capture_output=True),
        rounds=20,
    )
    report("the last 20 of 500 revisions with their diffs / git log -p -20", ours, peer, at_most=3)


def origins(place: Path) -> None:
    directory = place / "origins.git"
    history = History.create(directory, SystemClock())
    chance = random.Random(7)
    lines = [b"line %d\n" % n for n in range(2_000)]
    for number in range(3_000):
        lines[chance.randrange(2_000)] = b"written by revision %d\n" % number
        history.record({MEMORY: b"".join(lines)}, AUTHOR)
    history.pack()
    kept = LineOrigins(place / "search" / "x.db", history)
    blame = ["git", f"--git-dir={directory}", "blame", "--porcelain", "main", "--", MEMORY]

    def ask_git() -> object:
        return subprocess.run(blame, check=True, capture_output=True)

    def build() -> object:
        kept.empty()
        return kept.stamps(())

    ours, peer = compare(build, ask_git, rounds=1)
    report(
        "  building the origins of 3 000 revisions / one git blame",
        ours,
        peer,
        at_most=None,
    )
    ours, peer = compare(lambda: kept.origins(MEMORY), ask_git, rounds=5)
    report("origins of 2 000 lines of 3 000 revisions / git blame", ours, peer, at_most=1 / 50)
    agree = kept.origins(MEMORY) == [line.revision for line in history.blame(MEMORY)]
    print(f"  {peer / ours:.0f} times faster; the same origins: {agree}", flush=True)

    def write_and_ask() -> object:
        lines[chance.randrange(2_000)] = b"%d\n" % chance.randrange(10**9)
        history.record({MEMORY: b"".join(lines)}, AUTHOR)
        return kept.origins(MEMORY)

    ours, peer = compare(write_and_ask, ask_git, rounds=5)
    report("  a revision and the origins after it / git blame", ours, peer, at_most=None)
    kept.close()
    shutil.rmtree(directory)


def door(place: Path) -> None:
    clock = SystemClock()
    home = Home(place / "home")
    home.prepare()
    records = MemoryRecords(clock)
    owner = default_owner(records, clock)
    workspace = Workspaces(owner, home, records, clock, template=lambda _: {}).create("notes")
    workspace.write(MEMORY, BODY, by=AUTHOR)
    file = str(home.tree(workspace.namespace) / MEMORY)

    def plain() -> object:
        for _ in range(200):
            with open(file, "rb") as stream:  # noqa: PTH123 - the floor
                stream.read()
        return None

    def ours() -> object:
        for _ in range(200):
            workspace.read("MEMORY.md")
        return None

    mine, peer = compare(ours, plain, rounds=30)
    report("MEMORY.md through the door / open and read", mine, peer, at_most=2)


if __name__ == "__main__":
    main()
