"""Safe opens while another process swaps names in the tree, as an agent's command can.

It exchanges directories with links, puts links, hard links, FIFOs and directories in the place of
files, and takes away what it put there, as fast as it can, while the host reads, writes, scans and
settles. Beside the home lies a copy of the tree's names with a canary in each file: nothing there may
be read, replaced, created or removed, and nothing may end in a bug or wait for the attacker.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.actors import opened_at, over, run, start
from workspaces.errors import Failure
from workspaces.home.layout import Home
from workspaces.localfs.safe_open import SafeRoot
from workspaces.revision import Author
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.workspace import Workspace

OPERATIONS = 500_000 if os.environ.get("SOAK") else 20_000
ENOUGH = OPERATIONS // 50
"""Of those that came through, and of those that the attacker had made impossible: fewer prove nothing. Where
a machine gives one of the two its time in large pieces the host goes on until there were so many."""
SECONDS_MAX = 1800

SECRET = "the canary sings"
HOST = Author("host", "usr_1", "api")
DIRECTORIES = ("notes", "notes/deep", "other")
FILES = tuple(
    f"{directory}{name}" for directory in ("", "notes/", "notes/deep/", "other/") for name in "ab"
)
_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Naive(SafeRoot):
    """The planted mutant: opens by name, as if nobody could swap anything."""

    def _open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NONBLOCK, dir_fd=self._fd)

    def _opened_file(self, directory: int, leaf: str) -> int:
        return os.open(leaf, os.O_RDONLY | os.O_NONBLOCK, dir_fd=directory)


DOORS: dict[str, Callable[[Path], SafeRoot]] = {
    "openat2": lambda root: SafeRoot(root, openat2=True),
    "walk": lambda root: SafeRoot(root, openat2=False),
    "naive": Naive,
}


@pytest.mark.parametrize("door", ["openat2", "walk"])
def test_a_process_that_swaps_names_gets_nothing_from_outside_and_breaks_nothing(
    tmp_path: Path, door: str
) -> None:
    home, outside = tmp_path / "home", copy_of_names(tmp_path / "outside")
    workspace = opened_at(home)
    before = snapshot(outside)
    report = attacked(workspace, home, outside, door, OPERATIONS)
    assert report["escapes"] == []
    assert report["bugs"] == []
    assert snapshot(outside) == before
    assert sum(report["met"].values()) >= OPERATIONS
    assert_usable(workspace, home)


def test_the_attack_detects_an_open_by_name(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", copy_of_names(tmp_path / "outside")
    report = attacked(opened_at(home), home, outside, "naive", 0)
    assert report["escapes"]


def attacked(
    workspace: Workspace, home: Path, outside: Path, door: str, operations: int
) -> dict[str, Any]:
    """What the host met in at least so many operations, or until something has come in from outside."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    attacker = start(swap, str(workspace.root), str(outside), seed, out=subprocess.PIPE)
    try:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "at it\n"
        printed = run(work, str(home), door, operations, seed, wait_s=SECONDS_MAX)
        assert attacker.poll() is None, "the attack has ended before its time"
    finally:
        os.killpg(attacker.pid, signal.SIGKILL)
        attacker.communicate(timeout=SECONDS_MAX)
    print(printed)
    return json.loads(printed)


def assert_usable(workspace: Workspace, home: Path) -> None:
    """After all that: the next writer goes on, and the history is whole and holds no canary."""
    workspace.edits.commit()
    assert workspace.write("after.md", "after", by=HOST).revision is not None
    git = ["git", f"--git-dir={Home(home).history(workspace.namespace)}"]
    checked = subprocess.run([*git, "fsck", "--strict"], capture_output=True, timeout=120)
    assert checked.returncode == 0, checked.stderr
    found = subprocess.run(
        [*git, "log", "--all", "-p", "-S", SECRET, "--format=%H"], capture_output=True, timeout=120
    )
    assert found.stdout == b""


def copy_of_names(outside: Path) -> Path:
    for name in FILES:
        file = outside / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SECRET)
    return outside


def snapshot(outside: Path) -> dict[str, tuple[int, int, str | None]]:
    """Names, inodes, modes and contents; links may be made to a file from elsewhere, so no counts."""
    found: dict[str, tuple[int, int, str | None]] = {}
    for path in (outside, *sorted(outside.rglob("*"))):
        status = path.lstat()
        data = path.read_text() if path.is_file() else None
        found[str(path)] = (status.st_ino, status.st_mode, data)
    return found


def work(home: str, door: str, operations: int, seed: int) -> None:
    """The host: prints what it met."""
    workspace = opened_at(home)
    place = Home(Path(home))
    blobs = FileBlobs(
        workspace.root,
        place.staging(workspace.namespace),
        open_tree=DOORS[door],
    )
    workspace = over(workspace, place, blobs)
    randomly = random.Random(seed)
    kinds = {read: 800, scan: 150, write: 20, delete: 8, settle: 15, command: 2, plant: 5}
    met: Counter[str] = Counter()
    escapes: list[str] = []
    bugs: list[str] = []
    while (
        sum(met.values()) < operations or min(met["done"], met["Refused"]) < ENOUGH
    ) and not escapes:
        (kind,) = randomly.choices(list(kinds), list(kinds.values()))
        try:
            answer = kind(workspace, randomly.choice(FILES))
            met["done"] += 1
            if SECRET in answer:
                escapes.append(f"{kind.__name__}: {answer[:200]}")
        except Failure as failure:
            met[type(failure).__name__] += 1
        except Exception as error:
            met["bug"] += 1
            bugs.append(f"{kind.__name__}: {type(error).__name__}: {error}")
    print(json.dumps({"met": met, "escapes": escapes, "bugs": bugs[:20]}))


def read(workspace: Workspace, path: str) -> str:
    return workspace.read(path).text


def scan(workspace: Workspace, path: str) -> str:
    return " ".join(workspace.tree.scan().files)


def write(workspace: Workspace, path: str) -> str:
    workspace.write(path, f"written {time.monotonic_ns()}\n", by=HOST)
    return ""


def delete(workspace: Workspace, path: str) -> str:
    workspace.delete(path, by=HOST)
    return ""


def plant(workspace: Workspace, path: str) -> str:
    workspace.plant({path: b"planted\n"}, by=HOST)
    return ""


def settle(workspace: Workspace, path: str) -> str:
    workspace.edits.commit()
    return ""


def command(workspace: Workspace, path: str) -> str:
    with workspace.command(HOST):
        return ""


def swap(root: str, outside: str, seed: int) -> None:
    """The attacker: until it is killed. It links to what lies outside, and reaches nothing there."""
    attacker = Attacker(Path(root), Path(outside), random.Random(seed))
    parent = os.getppid()
    print("at it", flush=True)
    while os.getppid() == parent:
        with suppress(OSError):
            attacker.move()


class Attacker:
    def __init__(self, root: Path, outside: Path, randomly: random.Random) -> None:
        self._tree = SafeRoot(root)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self._outside = outside
        self._randomly = randomly
        self._made = 0

    def move(self) -> None:
        name = self._randomly.choice((*FILES, *DIRECTORIES))
        if self._randomly.random() < 0.2:
            self._exchange(name, self._randomly.choice((*FILES, *DIRECTORIES)))
        elif self._randomly.random() < 0.1:
            self._remove(name)
        else:
            self._put(name)

    def _put(self, name: str) -> None:
        """Something new in the place of what is there, at once."""
        self._made += 1
        made = f"made-{self._made}"
        makes = [self._link, self._hard_link, self._fifo, *[self._file] * 4, *[self._directory] * 3]
        self._randomly.choice(makes)(made, name)
        try:
            self._exchange(made, name)
        except FileNotFoundError:
            with self._parent(name) as (parent, leaf):
                os.rename(made, leaf, src_dir_fd=self._root, dst_dir_fd=parent)
        finally:
            with suppress(FileNotFoundError):
                self._remove(made)

    def _exchange(self, one: str, other: str) -> None:
        with self._parent(one) as (one_fd, one_leaf), self._parent(other) as (fd, leaf):
            done = _libc.renameat2(one_fd, one_leaf.encode(), fd, leaf.encode(), _EXCHANGE)
            if done != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))

    def _remove(self, name: str) -> None:
        with self._parent(name) as (parent, leaf):
            try:
                os.unlink(leaf, dir_fd=parent)
            except IsADirectoryError:
                shutil.rmtree(leaf, ignore_errors=True, dir_fd=parent)

    def _link(self, made: str, name: str) -> None:
        target = self._outside / name
        up = "../" * (3 + name.count("/")) + f"outside/{name}"
        aims = (str(target), str(target.parent), up, str(Path(up).parent), "a", ".")
        os.symlink(self._randomly.choice(aims), made, dir_fd=self._root)

    def _hard_link(self, made: str, name: str) -> None:
        os.link(self._outside / name, made, dst_dir_fd=self._root)

    def _fifo(self, made: str, name: str) -> None:
        os.mkfifo(made, dir_fd=self._root)

    def _file(self, made: str, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        fd = os.open(made, flags, 0o600, dir_fd=self._root)
        os.write(fd, f"inside {self._made}\n".encode())
        os.close(fd)

    def _directory(self, made: str, name: str) -> None:
        os.mkdir(made, dir_fd=self._root)
        for leaf in "ab":
            self._file(f"{made}/{leaf}", name)

    @contextmanager
    def _parent(self, name: str) -> Generator[tuple[int, str]]:
        parent, _, leaf = name.rpartition("/")
        with self._tree.directory(parent) as fd:
            yield fd, leaf
