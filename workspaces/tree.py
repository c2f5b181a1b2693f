"""What lies in a workspace's directory right now: path → version, and what cannot be kept.

A file whose size, times and inode are those of the last scan is taken for unchanged, unless it is so
young that a second write within the clock's grain could hide behind the same stamp: clocks and mtimes
decide nothing here, they only save hashing.

Of twins, names that differ only in case, one is kept, and of too many files as many as the quota allows:
those that the history has before all others, so that nobody hides a file from it by making more beside
it; then the first. What editors keep for themselves (`scratch`) is named apart, unless the history has it.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from workspaces.clock import Clock
from workspaces.configuration import Quota
from workspaces.errors import Failure, NotFound, OverLimit
from workspaces.history.objects import ObjectId, blob_id
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath, broken_rule, folded
from workspaces.problem import Problem
from workspaces.scratch import is_scratch
from workspaces.stores.files import FileBlobs

YOUNG_S = 2.0
"""Coarser than the time stamps of any file system in use (FAT: two seconds)."""


@dataclass(frozen=True, slots=True)
class FileState:
    version: Version
    object_id: ObjectId
    size: int


@dataclass(slots=True)
class Tree:
    files: dict[WorkspacePath, FileState] = field(default_factory=dict[WorkspacePath, FileState])
    problems: list[Problem] = field(default_factory=list[Problem])
    scratch: list[str] = field(default_factory=list[str])
    """An editor's own: in no revision, and nothing is wrong with it."""
    bytes: int = 0
    """Of all files that are kept."""


_Signature = tuple[int, int, int, int]


class TreeScan:
    """Scans one directory again and again, hashing only what may have changed."""

    def __init__(
        self,
        blobs: FileBlobs,
        quota: Quota,
        clock: Clock,
        recorded: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        """`recorded`: the names in the history; asked for only when what is kept depends on it."""
        self._blobs = blobs
        self._recorded = recorded
        self._quota = quota
        self._clock = clock
        self._known: dict[str, tuple[_Signature, FileState]] = {}
        self._lock = threading.Lock()

    def scan(self) -> Tree:
        with self._lock:
            walked = dict(self._blobs.walk())
            scratch = self._scratch(walked)
            walked = {name: status for name, status in walked.items() if name not in scratch}
            tree = self._look_at(walked)
            if any(problem.kind in {"twin", "over_quota"} for problem in tree.problems):
                first = {name: walked[name] for name in self._recorded() if name in walked}
                tree = self._look_at({**first, **walked})
        tree.scratch = sorted(scratch)
        return tree

    def _scratch(self, walked: Mapping[str, os.stat_result]) -> set[str]:
        found = {name for name in walked if is_scratch(name)}
        return found - set(self._recorded()) if found else found

    def _look_at(self, walked: Mapping[str, os.stat_result]) -> Tree:
        tree = Tree()
        twins: dict[str, str] = {}
        seen: dict[str, tuple[_Signature, FileState]] = {}
        for name, status in walked.items():
            found = self._look(name, status, tree, twins)
            if isinstance(found, Problem):
                tree.problems.append(found)
            elif found is not None:
                tree.files[WorkspacePath(name)] = found
                tree.bytes += found.size
                age = self._clock.now().timestamp() - max(status.st_mtime, status.st_ctime)
                if age > YOUNG_S:
                    seen[name] = (_signature(status), found)
        self._known = seen
        tree.files = dict(sorted(tree.files.items()))
        return tree

    def _look(
        self, name: str, status: os.stat_result, tree: Tree, twins: dict[str, str]
    ) -> FileState | Problem | None:
        """What to make of one entry of the directory; None when it is gone since it was listed."""
        problem = _problem(name, status, twins)
        if problem is not None:
            return problem
        if len(tree.files) >= self._quota.files:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.files:,} files"
            )
        if tree.bytes + status.st_size > self._quota.bytes:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.bytes:,} bytes"
            )
        try:
            return self._state(name, status)
        except NotFound:
            return None
        except OverLimit as error:
            return Problem(name, "over_quota", str(error))
        except Failure as error:
            return Problem(name, "unreadable", str(error))

    def _state(self, name: str, status: os.stat_result) -> FileState:
        known = self._known.get(name)
        if known is not None and known[0] == _signature(status):
            return known[1]
        data = self._blobs.read(name).data
        return FileState(version_of(data), blob_id(data), len(data))


def _signature(status: os.stat_result) -> _Signature:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _problem(name: str, status: os.stat_result, twins: dict[str, str]) -> Problem | None:
    """Why a file cannot be kept; what can is entered into `twins`, for its twins to be found."""
    rule = broken_rule(name)
    if rule is not None:
        return Problem(name, "bad_name", rule)
    if not stat.S_ISREG(status.st_mode):
        return Problem(name, "not_a_file", "is not a regular file")
    if status.st_nlink > 1:
        return Problem(name, "not_a_file", "has a second link, which may be another file's name")
    for prefix in _prefixes(name):
        first = twins.setdefault(folded(prefix), prefix)
        if first != prefix:
            return Problem(name, "twin", f"differs from {first!r} only in case")
    return None


def _prefixes(name: str) -> list[str]:
    """The path and every directory on its way."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
