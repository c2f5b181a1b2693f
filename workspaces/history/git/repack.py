"""Repacking: move many loose objects into one pack, while readers read.

The order of the steps makes it safe. The new pack is complete and durable before anything that it replaces
is removed. A concurrent reader finds an object twice, never nowhere. A reader that listed the old files
looks again (`objects`).

Objects that no revision reaches are removed: those in old packs at once, loose ones after a day. A writer
leaves them if it is killed before its branch moves, and nothing needs them. A process that writes objects,
or admits them from a quarantine, holds the writer lock until a revision reaches them. Packing holds that
lock too. The checked objects of a quarantine lie beside the history. If they build on objects of the
history, `History.receive` looks for those again under the lock before the branch moves. Objects that are
gone by then are fetched again. Bases of merges are recorded versions, so they stay.

`erase_unreachable` is for a history that was rewritten: it leaves nothing but what the branch reaches, at
once. A note is written before the branch moves, so that the next packing erases what a crash left.

Nothing here runs on its own. The holder of the writer lock calls it.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from workspaces.history.git.branch import NAME
from workspaces.history.git.objects import sync, unwritable
from workspaces.history.git.program import run_git

LOOSE_OBJECTS_MAX = 2_000
"""Loose objects of about five hundred revisions. Below it packing gains little; far above it directories
get slow."""

PACKS_MAX = 32
"""Packs before packing is due. Large bundles from other machines stay as packs, and every lookup searches
every pack."""

INCOMING_KEPT_S = 24 * 3600
"""Age at which a quarantine directory counts as abandoned. No machine checks a bundle for longer."""

UNREACHABLE_KEPT = "1.day.ago"
"""Age from which git prunes unreachable objects. It is longer than any writer takes from its first object to
its revision, and leaves a person time to inspect the remains of a crash."""


ERASE_NOTE = "erase"
"""File in a git directory whose branch was, or is about to be, moved to a rewritten history."""

ERASE_SECONDS_MAX = 3600.0
"""Seconds after which git is killed. It packs the whole history, with deltas for all that is new."""

_KEPT = frozenset({"HEAD", "config", "objects", "refs", ERASE_NOTE})


def pack(git_directory: Path) -> None:
    """Pack the loose objects, prune unreachable ones and remove abandoned quarantines. The caller holds the
    writer lock.

    Raises: Unavailable when git fails or the directory cannot be written."""
    if is_erasure_noted(git_directory):
        erase_unreachable(git_directory)
        return
    packs = git_directory / "objects" / "pack"
    git = f"--git-dir={git_directory}"
    try:
        packs.mkdir(exist_ok=True)
        before = _names(packs)
        # Git flushes each file before it gets its name. Without -d the old packs stay for now.
        run_git(git, "-c", "core.fsync=committed", "repack", "-a", "-q", "-n")
        sync(packs)
        if _names(packs) - before:
            _remove_all(packs, before)
        run_git(git, "prune-packed", "--quiet")
        run_git(git, "prune", f"--expire={UNREACHABLE_KEPT}")
        from workspaces.history.git.quarantine import sweep

        sweep(git_directory, time.time() - INCOMING_KEPT_S)
    except OSError as error:
        raise unwritable(error) from error


def note_erasure(git_directory: Path) -> None:
    """Note, durably, that whatever the branch does not reach must be erased.

    Raises: Unavailable when the directory cannot be written."""
    try:
        (git_directory / ERASE_NOTE).touch()
        sync(git_directory)
    except OSError as error:
        raise unwritable(error) from error


def is_erasure_noted(git_directory: Path) -> bool:
    return (git_directory / ERASE_NOTE).exists()


def end_erasure(git_directory: Path) -> None:
    """Remove the note of an erasure, durably.

    Raises: Unavailable when the directory cannot be written."""
    try:
        (git_directory / ERASE_NOTE).unlink(missing_ok=True)
        sync(git_directory)
    except OSError as error:
        raise unwritable(error) from error


def erase_unreachable(git_directory: Path) -> None:
    """Remove everything that the branch does not reach: objects, other refs, logs, quarantines. The caller
    holds the writer lock. A reader of what stays is not disturbed.

    Raises: Unavailable when git fails or the directory cannot be written."""
    objects = git_directory / "objects"
    packs = objects / "pack"
    git = f"--git-dir={git_directory}"
    try:
        for path in git_directory.iterdir():
            if path.name not in _KEPT:
                _remove(path)
        for path in git_directory.parent.glob(f"{git_directory.name}.*"):
            _remove(path)  # another history that was begun in its place
        for path in sorted((git_directory / "refs").rglob("*"), reverse=True):
            if not (git_directory / NAME).is_relative_to(path):
                _remove(path)
        packs.mkdir(exist_ok=True)
        kept = _pack_reachable(git, packs) if (git_directory / NAME).exists() else ""
        _remove_all(packs, {name for name in _names(packs) if not kept or kept not in name})
        for path in objects.iterdir():
            if path != packs:
                _remove(path)
        sync(objects)
        sync(git_directory)
    except OSError as error:
        raise unwritable(error) from error


def needs_packing(objects: Path) -> bool:
    if is_erasure_noted(objects.parent) or count_loose(objects) > LOOSE_OBJECTS_MAX:
        return True
    try:
        return sum(name.endswith(".pack") for name in os.listdir(objects / "pack")) > PACKS_MAX  # noqa: PTH208
    except FileNotFoundError:
        return False


def count_loose(objects: Path) -> int:
    """Estimate the number of loose objects from a sixteenth of the directories. Names are hashes, so the
    directories fill evenly."""
    sampled = 16
    objects_seen = 0
    for number in range(sampled):
        try:
            objects_seen += len(os.listdir(objects / f"{number * 16 + number:02x}"))  # noqa: PTH208
        except FileNotFoundError:
            continue
    return objects_seen * 256 // sampled


def _pack_reachable(git: str, packs: Path) -> str:
    """Write one pack of everything that the branch reaches, durably. Return the hash in its name."""
    name = run_git(
        git,
        "-c",
        "core.fsync=committed",
        "pack-objects",
        "-q",
        "--revs",
        "--delta-base-offset",
        str(packs / "pack"),
        stdin=f"{NAME}\n".encode(),
        seconds_max=ERASE_SECONDS_MAX,
    )
    sync(packs)
    return name.decode().strip()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def _remove_all(packs: Path, names: set[str]) -> None:
    """Remove pack files, each index before its pack. A reader that finds an index must find its pack too."""
    for name in sorted(names, key=lambda name: not name.endswith(".idx")):
        (packs / name).unlink(missing_ok=True)
    sync(packs)
