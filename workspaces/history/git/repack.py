"""Packing: many loose objects become one pack, while readers read.

The order is the safety: the new pack is whole and durable before anything it replaces is taken away,
and whoever looks in between finds an object twice, never nowhere. A reader that had listed the old
places looks again (`objects`).

What no revision reaches, because a writer was killed before its branch moved, goes: with the old packs at
once, and loose after a day. Nobody misses it. Whoever writes objects or admits them from a quarantine holds
the writer lock until a revision reaches them, and so does this. What a quarantine has looked at lies beside
the history; where it leans on something here, that is looked for again under the lock before it is followed
(`History.receive`), and what is gone by then is fetched once more. Bases of merges are versions that were
recorded.

Nothing here runs on its own; the holder of the writer lock calls it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from workspaces.history.git.objects import sync, unwritable
from workspaces.history.git.program import run_git
from workspaces.history.git.quarantine import sweep

LOOSE_OBJECTS_MAX = 2_000
"""Some five hundred revisions: below it packing gains little, far above it directories get slow."""

PACKS_MAX = 32
"""What comes from other machines in large pieces stays in packs: each is asked for each object."""

INCOMING_KEPT_S = 24 * 3600
"""No machine takes longer to look at what came from elsewhere."""

UNREACHABLE_KEPT = "1.day.ago"
"""Longer than any writer takes from its first object to its revision, with room for a person to
look at what a crash has left."""


def pack(git_directory: Path) -> None:
    """Only under the writer lock."""
    packs = git_directory / "objects" / "pack"
    git = f"--git-dir={git_directory}"
    try:
        packs.mkdir(exist_ok=True)
        before = _names(packs)
        # Git flushes each file before it gets its name. Without -d whatever was there stays for now.
        run_git(git, "-c", "core.fsync=committed", "repack", "-a", "-q", "-n")
        sync(packs)
        if _names(packs) - before:
            _remove_all(packs, before)
        run_git(git, "prune-packed", "--quiet")
        run_git(git, "prune", f"--expire={UNREACHABLE_KEPT}")
        sweep(git_directory, time.time() - INCOMING_KEPT_S)
    except OSError as error:
        raise unwritable(error) from error


def needs_packing(objects: Path) -> bool:
    if count_loose(objects) > LOOSE_OBJECTS_MAX:
        return True
    try:
        return sum(name.endswith(".pack") for name in os.listdir(objects / "pack")) > PACKS_MAX  # noqa: PTH208
    except FileNotFoundError:
        return False


def count_loose(objects: Path) -> int:
    """How many loose objects there are, from a sixteenth of the directories: names are hashes."""
    looked_at = 16
    found = 0
    for number in range(looked_at):
        try:
            found += len(os.listdir(objects / f"{number * 16 + number:02x}"))  # noqa: PTH208
        except FileNotFoundError:
            continue
    return found * 256 // looked_at


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def _remove_all(packs: Path, names: set[str]) -> None:
    """An index goes before its pack: who finds the index must find the pack too."""
    for name in sorted(names, key=lambda name: not name.endswith(".idx")):
        (packs / name).unlink(missing_ok=True)
    sync(packs)
