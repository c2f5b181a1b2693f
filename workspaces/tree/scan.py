"""Scan a workspace's directory: path → version, and the files that cannot be kept.

A file counts as unchanged if its size, times and inode are those of the last scan. The exception is a young
file: a second write could have the same time stamp, because clocks have a limited resolution. Clocks and
mtimes decide nothing here. They only save hashing.

If the stats of all files and directories equal those of the last scan, and no file was young then, the
answer is that of the last scan. That costs one stat for each file and nothing more.

Names that differ only in case are *twins*, and only one of them is kept. Of too many files, as many are kept
as the quota allows. Files in the history come first in both cases. So no program can hide a file from the
history by making more files beside it. After these, the first by name are kept. Files that editors keep
for themselves (`scratch`) are listed apart, unless the history has them.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, Protocol

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, OverLimit
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath, broken_rule, folded
from workspaces.problem import Problem, ProblemKind
from workspaces.quota_limits import QuotaLimits
from workspaces.tree.conflict_copy import is_conflict
from workspaces.tree.editor_files import is_editor_file
from workspaces.tree.port import Examine, LiveTree

YOUNG_S = 2.0
"""Age below which a file is young: coarser than the time stamps of any file system in use (FAT: two
seconds)."""


GLANCE_S = 60.0
"""Age up to which a scan may stand for a new one while no directory has changed."""


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
    """Files of editors. They are in no revision and are not problems."""
    bytes: int = 0
    """Size of all files that are kept."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    tree: Tree
    at: float
    """The monotonic time at which the scan began."""


class Signature(NamedTuple):
    """The part of a stat that proves that a file, if not young, has not changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class FileStat(NamedTuple):
    """The stat of a file or a directory."""

    mode: int
    links: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def changed_ns(self) -> int:
        return max(self.mtime_ns, self.ctime_ns)

    @property
    def signature(self) -> Signature:
        return Signature(self.size, self.mtime_ns, self.ctime_ns, self.inode)


_stat_fields: Callable[[os.stat_result], tuple[int, ...]] = attrgetter(
    "st_mode", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"
)
"""Return the fields of a FileStat. This is faster than building one."""

_STABLE_KINDS: frozenset[ProblemKind] = frozenset({"bad_name", "not_a_file", "conflict"})
"""Kinds of problems that stay as long as the same files are there."""

Known = Mapping[str, tuple[Signature, FileState]]
"""The stat cache: files that need no hashing again."""

OnFileRead = Callable[[str, bytes], None]
"""Called with the name and bytes of every file that had to be read and is not held back."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A file on the disk that is not kept as it is."""

    problem: Problem
    last_kept: FileState | None
    """Its newest version in the history, which counts for all readers. None: there is none."""


class HoldBack(Protocol):
    """The rule by which files are held back."""

    def version(self) -> int:
        """Return a number that changes with the rule. 0: no file is held back."""
        ...

    def __call__(self, name: str, data: bytes, state: FileState) -> HeldBack | None:
        """Return the state and problem of a file that is held back. None: it is kept."""
        ...


class TreeScan:
    """A scanner of one directory. It scans again and again and hashes only the files that may have
    changed."""

    def __init__(
        self,
        blobs: LiveTree,
        quota: QuotaLimits,
        clock: Clock,
        recorded: Callable[[], Mapping[WorkspacePath, ObjectId]] = dict,
        hold_back: HoldBack | None = None,
    ) -> None:
        """`recorded` returns the files of the history. It is called only when the result depends on them."""
        self._blobs = blobs
        self._recorded = recorded
        self._quota = quota
        self._clock = clock
        self._hold_back = hold_back
        self._holds: Mapping[WorkspacePath, ObjectId] | None = None
        """The files of the history, during a scan that holds back files. None in any other scan."""
        self.known: Known = {}
        """The stat cache of the last scan. May be set to that of an earlier process."""
        self._last: _Scanned | None = None
        """The last scan. None if stats alone cannot prove that a new scan would have the same result."""
        self._was_replaced_meanwhile = False
        """True if a file was replaced between its listing and its reading."""
        self.newest: ScanResult | None = None
        """The newest scan. Each scan makes its own object, also if nothing has changed."""
        self._lock = threading.Lock()

    def glance(self) -> Tree:
        """Return the last scan if it is at most a minute old and no directory has changed since; else scan.

        A file that was added, removed or replaced is seen at once, and one that was written in place within
        that minute. The cost is one stat for each directory instead of one for each file.
        """
        newest, last = self.newest, self._last
        if newest is None or last is None or not last.directories:
            return self.scan()
        if self._clock.monotonic() - newest.at >= GLANCE_S:
            return self.scan()
        return self.untouched("", ()) or self.scan()

    def scan(self, on_read: OnFileRead = lambda _name, _data: None) -> Tree:
        """Return every file with its version, and the problems. The caller must not change the result: the
        next scan may return the same object."""
        with self._lock:
            self._was_replaced_meanwhile = False
            young = self._young_ns()
            scanned_at = self._clock.monotonic()
            last, stats = self._last, self._stats()
            rule = self._hold_back.version() if self._hold_back else 0
            if (
                last is not None and last.stats == stats and last.rule == rule
            ):  # nothing has changed
                self.known = last.known
                self.newest = ScanResult(last.tree, scanned_at)
                return last.tree
            self._holds = self._recorded() if rule else None
            tree = self._classify(stats, on_read)
            has_young_file = any(status.changed_ns >= young for status in stats.values())
            is_stable = not tree.scratch and _STABLE_KINDS.issuperset(
                one.kind for one in tree.problems
            )
            is_reusable = not has_young_file and is_stable and not self._was_replaced_meanwhile
            self._last = _scan_result(tree, self.known, stats, rule) if is_reusable else None
            self.newest = ScanResult(tree, scanned_at)
            return tree

    def _stats(self) -> dict[str, FileStat]:
        """Return the stat of every file and directory. A stat equal to that of the last scan is the same
        object. So no new objects are left for the garbage collector, even with ten thousand files."""
        before: Mapping[str, FileStat] = self._last.stats if self._last is not None else {}
        stats: dict[str, FileStat] = {}
        for name, status in self._blobs.walk():
            fields, known = _stat_fields(status), before.get(name)
            stats[name] = known if known is not None and known == fields else FileStat._make(fields)
        return stats

    def _young_ns(self) -> int:
        return int((self._clock.now().timestamp() - YOUNG_S) * 1e9)

    def untouched(self, directory: str, files: Iterable[str]) -> Tree | None:
        """Return the last scan if a directory and these files in it have the same stats as then. Else return
        None.
        Equal stats prove that no entry of the directory, or of those below it, was added or removed. Another
        file may have been written in place."""
        last = self._last
        if last is None:
            return None
        prefix = f"{directory}/" if directory else ""
        below = (one for one in last.directories if one.startswith(prefix))
        names = {directory, *below, *files}
        now = {name: _stat_fields(status) for name, status in self._blobs.stats(names).items()}
        before = {name: last.stats[name] for name in names if name in last.stats}
        return last.tree if now == before else None

    def _classify(self, stats: Mapping[str, FileStat], on_read: OnFileRead) -> Tree:
        files = {name: status for name, status in stats.items() if not stat.S_ISDIR(status.mode)}
        scratch = self._scratch(files)
        files = {name: status for name, status in files.items() if name not in scratch}
        tree = self._build_tree(files, on_read)
        if any(problem.kind in {"twin", "over_quota"} for problem in tree.problems):
            first = {name: files[name] for name in self._recorded() if name in files}
            # some files have no place: those in the history go first
            tree = self._build_tree({**first, **files}, on_read)
        tree.scratch = sorted(scratch)
        return tree

    def _scratch(self, files: Iterable[str]) -> set[str]:
        found = {name for name in files if is_editor_file(name)}
        return found - set(self._recorded()) if found else found

    def _build_tree(self, files: Mapping[str, FileStat], on_read: OnFileRead) -> Tree:
        tree = Tree()
        names = _Names()
        cache: dict[str, tuple[Signature, FileState]] = {}
        young = self._young_ns()
        with self._blobs.examining() as examine:
            for name, status in files.items():
                result = self._examine(name, status, tree, names, examine, on_read)
                if isinstance(result, Problem):
                    tree.problems.append(result)
                elif isinstance(result, HeldBack):
                    tree.problems.append(result.problem)
                    if result.last_kept is not None:
                        _add(tree, WorkspacePath(name), result.last_kept)
                elif result is not None:
                    state, examined = result
                    _add(tree, WorkspacePath(name), state)
                    if examined.changed_ns < young:
                        cache[name] = self._entry(name, state, examined)
        self.known = cache
        tree.files = dict(sorted(tree.files.items()))
        return tree

    def _examine(
        self,
        name: str,
        status: FileStat,
        tree: Tree,
        names: _Names,
        examine: Examine,
        on_read: OnFileRead,
    ) -> tuple[FileState, FileStat] | HeldBack | Problem | None:
        """Return a file's state or its problem. Return None if the file was removed since it was listed."""
        problem = _problem(name, status) or names.problem(name)
        if problem is not None:
            return problem
        if len(tree.files) >= self._quota.files:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.files:,} files"
            )
        if tree.bytes + status.size > self._quota.bytes:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.bytes:,} bytes"
            )
        try:
            return self._state(name, status, examine, on_read)
        except NotFound:  # removed since it was listed
            return None
        except OverLimit as error:
            return Problem(name, "over_quota", str(error))
        except Failure as error:
            return Problem(name, "unreadable", str(error))

    def _state(
        self, name: str, status: FileStat, examine: Examine, on_read: OnFileRead
    ) -> tuple[FileState, FileStat] | HeldBack:
        """Return a file's state, with the stat of the file that was read."""
        known = self.known.get(name)
        if known is not None and known[0] == status.signature and self._is_kept(name, known[1]):
            return known[1], status
        data, read_status = examine(name)
        examined = FileStat._make(_stat_fields(read_status))
        self._was_replaced_meanwhile = (
            self._was_replaced_meanwhile or examined.signature != status.signature
        )
        state = FileState(version_of(data), blob_id(data), len(data))
        if self._hold_back is not None and not self._is_kept(name, state):
            held_back = self._hold_back(name, data, state)
            if held_back is not None:
                return held_back
        on_read(name, data)
        return state, examined

    def _is_kept(self, name: str, state: FileState) -> bool:
        """Return True if no file is held back, or the history has this one as it is."""
        return self._holds is None or self._holds.get(WorkspacePath(name)) == state.object_id

    def _entry(
        self, name: str, state: FileState, examined: FileStat
    ) -> tuple[Signature, FileState]:
        """Return an entry of the stat cache: the same object as in the last scan if nothing changed."""
        known = self.known.get(name)
        return known if known and known[1] is state else (examined.signature, state)


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The result of a scan, with the stats that prove that nothing has changed since."""

    tree: Tree
    known: Known
    stats: Mapping[str, FileStat]
    directories: tuple[str, ...]
    rule: int
    """The version of the rule by which files were held back."""


def _scan_result(tree: Tree, known: Known, stats: Mapping[str, FileStat], rule: int) -> _Scanned:
    directories = (name for name, status in stats.items() if stat.S_ISDIR(status.mode))
    return _Scanned(tree, known, stats, tuple(directories), rule)


def _add(tree: Tree, path: WorkspacePath, state: FileState) -> None:
    tree.files[path] = state
    tree.bytes += state.size
    if is_conflict(path):
        tree.problems.append(Problem(path, "conflict", "could not be merged"))


class _Names:
    """The names found in one scan, to detect twins."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._directories: dict[str, Problem | None] = {"": None}

    def problem(self, name: str) -> Problem | None:
        """Return a problem if the name, or that of a directory above it, differs from an earlier one only in
        case."""
        directory = name.rpartition("/")[0]
        if directory not in self._directories:
            self._directories[directory] = self.problem(directory)
        above = self._directories[directory]
        if above is not None:
            return Problem(name, above.kind, above.detail)
        first = self._first.setdefault(folded(name), name)
        return (
            None if first == name else Problem(name, "twin", f"differs from {first!r} only in case")
        )


def _problem(name: str, status: FileStat) -> Problem | None:
    """Return the problem of a file that cannot be kept, regardless of other files."""
    rule = broken_rule(name)
    if rule is not None:
        return Problem(name, "bad_name", rule)
    if not stat.S_ISREG(status.mode):
        return Problem(name, "not_a_file", "is not a regular file")
    if status.links > 1:
        return Problem(name, "not_a_file", "has a second hard link, so it may be another file too")
    return None
