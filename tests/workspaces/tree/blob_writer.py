"""A process that writes files: started by test_directory.py, traced, made to fail, and killed."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Failure
from workspaces.paths import WorkspacePath
from workspaces.tree.directory import FileBlobs

OLD, NEW = b"old\n" * 100, b"new\n" * 200
NAME = "notes/deep/a.md"
NEW_FILE = {"create", "enter"}
"""What begins without the file."""


def once(home: Path, mode: str) -> None:
    """Say "ready", wait for a line, change one file, say what came of it."""
    store = FileBlobs(home / "tree", home / "staging")
    token = store.read(NAME).token if mode not in NEW_FILE else None
    os.write(1, b"ready\n")
    os.read(0, 1)
    told: dict[str, object] = {"outcome": "ok"}
    try:
        if mode == "delete":
            store.delete(NAME, expect=token)
        elif mode == "enter":
            come_in(store, WorkspacePath(NAME))
        else:
            store.write(NAME, NEW, expect=token or ABSENT)
    except Failure as error:
        told = {"outcome": error.code, "text": str(error)}
    os.write(1, json.dumps(told).encode() + b"\n")


def come_in(store: FileBlobs, path: WorkspacePath) -> None:
    """As a sync brings a new file."""
    try:
        staged = store.stage(NEW)
        store.confirm([staged])
        store.enter(staged, path)
        store.flush([path])
    finally:
        store.unstage()


def forever(home: Path) -> None:
    """Replace one file by a larger and a smaller one in turn, a line for each that is durable."""
    store = FileBlobs(home / "tree", home / "staging")
    for n in itertools.count():
        store.write(NAME, content(n), expect=ANY)
        os.write(1, b"%d\n" % n)


def content(n: int) -> bytes:
    return b"%08d" % n * (10 if n % 2 else 40_000)


def swap(home: Path) -> None:
    """Be an agent that tries to get out: directories become links and come back, without end."""
    tree, outside = home / "tree", home / "outside"
    os.write(1, b"ready\n")
    for n in itertools.count():
        turn_into_a_link(tree / "notes", outside, n)
        if not (tree / "notes").is_symlink():  # else the outside would be what is swapped
            turn_into_a_link(tree / "notes" / "deep", outside / "deep", n)


def turn_into_a_link(path: Path, target: Path, n: int) -> None:
    away = path.with_name(f"{path.name}.away")
    with suppress(OSError):  # nothing there just now: then there will be a link all the same
        path.rename(away)
    with suppress(OSError):  # the host makes something under the name in between
        path.symlink_to(target)
        for _ in range(n % 30):
            path.lstat()  # stay a link for a while, of differing length
        path.unlink()
        if n % 3 == 0:
            path.mkdir()
            path.rmdir()
    with suppress(OSError):
        away.rename(path)
    if away.exists():  # the host's directory stays in its place
        shutil.rmtree(away, ignore_errors=True)


if __name__ == "__main__":
    home, mode = Path(sys.argv[1]), sys.argv[2]
    {"forever": forever, "swap": swap}.get(mode, lambda home: once(home, mode))(home)
