"""What lies in a workspace's directory right now: path → version, and what cannot be kept.

A file whose size, times and inode are those of the last scan is taken for unchanged, unless it is so
young that a second write within the clock's grain could hide behind the same stamp: clocks and mtimes
decide nothing here, they only save hashing.

Of twins, names that differ only in case, one is kept: the one that the history has, so that nobody
hides a file from it by making another beside it; else the first.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound
from workspaces.ids import Version, version_of
from workspaces.objects import ObjectId, blob_id
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.problem import Problem
from workspaces.stores.files import FileBlobs

YOUNG_S = 2.0
"""Coarser than the time stamps of any file system in use (FAT: two seconds)."""


@dataclass(frozen=True, slots=True)
class FileState:
    version: Version
    object_id: ObjectId
    size: int


@dataclass(frozen=True, slots=True)
class Tree:
    files: dict[WorkspacePath, FileState] = field(default_factory=dict[WorkspacePath, FileState])
    problems: list[Problem] = field(default_factory=list[Problem])


_Signature = tuple[int, int, int, int]


class TreeScan:
    """Scans one directory again and again, hashing only what may have changed."""

    def __init__(
        self,
        blobs: FileBlobs,
        clock: Clock,
        recorded: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        """`recorded`: the names in the history; asked for only when there are twins."""
        self._blobs = blobs
        self._recorded = recorded
        self._clock = clock
        self._known: dict[str, tuple[_Signature, FileState]] = {}
        self._lock = threading.Lock()

    def scan(self) -> Tree:
        tree = Tree()
        seen: dict[str, tuple[_Signature, FileState]] = {}
        with self._lock:
            walked = list(self._blobs.walk())
            twins = self._twins(walked)
            for name, status in walked:
                problem = _problem(name, status) or twins.get(name)
                if problem is not None:
                    tree.problems.append(problem)
                    continue
                try:
                    state = self._state(name, status)
                except NotFound:
                    continue  # gone since it was listed
                except Failure as error:
                    tree.problems.append(Problem(name, "unreadable", str(error)))
                    continue
                tree.files[WorkspacePath(name)] = state
                if self._clock.now().timestamp() - max(status.st_mtime, status.st_ctime) > YOUNG_S:
                    seen[name] = (_signature(status), state)
            self._known = seen
        return tree

    def _twins(self, walked: list[tuple[str, os.stat_result]]) -> dict[str, Problem]:
        """Those that are not kept, by name."""
        alike: dict[str, list[str]] = {}
        for name, status in walked:
            if _problem(name, status) is None:
                alike.setdefault(WorkspacePath(name).folded, []).append(name)
        several = [names for names in alike.values() if len(names) > 1]
        recorded = self._recorded() if several else ()
        problems: dict[str, Problem] = {}
        for names in several:
            kept = next((name for name in names if name in recorded), names[0])
            for name in names:
                if name != kept:
                    problems[name] = Problem(name, "twin", f"differs from {kept!r} only in case")
        return problems

    def _state(self, name: str, status: os.stat_result) -> FileState:
        known = self._known.get(name)
        if known is not None and known[0] == _signature(status):
            return known[1]
        data = self._blobs.read(name).data
        return FileState(version_of(data), blob_id(data), len(data))


def _signature(status: os.stat_result) -> _Signature:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _problem(name: str, status: os.stat_result) -> Problem | None:
    """Why a file cannot be kept, whatever lies beside it."""
    rule = broken_rule(name)
    if rule is not None:
        return Problem(name, "bad_name", rule)
    if not stat.S_ISREG(status.st_mode):
        return Problem(name, "not_a_file", "is not a regular file")
    if status.st_nlink > 1:
        return Problem(name, "not_a_file", "has a second link, which may be another file's name")
    return None
