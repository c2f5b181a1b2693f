"""What lies in a workspace's directory right now: path → version, and what cannot be kept.

A file whose size, times and inode are those of the last scan is taken for unchanged, unless it is so
young that a second write within the clock's grain could hide behind the same stamp: clocks and mtimes
decide nothing here, they only save hashing.

Where the stats of everything are those of the last scan, directories too, and none was young then, the
answer is that of the last scan: one look at each file, and nothing is done about any.

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
from operator import attrgetter
from typing import NamedTuple

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, OverLimit
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath, broken_rule, folded
from workspaces.problem import Problem, ProblemKind
from workspaces.tree.conflict_copy import is_conflict
from workspaces.tree.editor_files import is_editor_file
from workspaces.tree.port import Examine, LiveTree
from workspaces.workspace_record import Quota

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


class Signature(NamedTuple):
    """What tells, of a file that is not young, that it was not touched since."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class FileStat(NamedTuple):
    """At a file or a directory."""

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


_SEEN: Callable[[os.stat_result], tuple[int, ...]] = attrgetter(
    "st_mode", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"
)
"""What a look is made of, sooner."""

_FIXED: frozenset[ProblemKind] = frozenset({"bad_name", "not_a_file", "conflict"})
"""Problems that are there as long as the same files are."""

Known = Mapping[str, tuple[Signature, FileState]]
"""The stat cache: what need not be hashed again."""

OnFileRead = Callable[[str, bytes], None]
"""Is told of every file that had to be read."""


class TreeScan:
    """Scans one directory again and again, hashing only what may have changed."""

    def __init__(
        self,
        blobs: LiveTree,
        quota: Quota,
        clock: Clock,
        recorded: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        """`recorded`: the names in the history; asked for only when what is kept depends on it."""
        self._blobs = blobs
        self._recorded = recorded
        self._quota = quota
        self._clock = clock
        self.known: Known = {}
        """Of the last scan. May be set to that of an earlier process."""
        self._last: _Scanned | None = None
        """None where stats alone do not tell that a scan would find the same."""
        self._was_overtaken = False
        """Whether another file was read than the one that was walked by."""
        self._lock = threading.Lock()

    def scan(self, told: OnFileRead = lambda _name, _data: None) -> Tree:
        """To be looked at only: the next scan may give the same one."""
        with self._lock:
            self._was_overtaken = False
            young = self._young_ns()
            last, looks = self._last, self._looks()
            if last is not None and last.looks == looks:
                self.known = last.known
                return last.tree
            tree = self._tree_of(looks, told)
            is_young = any(look.changed_ns >= young for look in looks.values())
            is_fixed = not tree.scratch and _FIXED.issuperset(one.kind for one in tree.problems)
            is_told = not is_young and is_fixed and not self._was_overtaken
            self._last = _scanned(tree, self.known, looks) if is_told else None
            return tree

    def _looks(self) -> dict[str, FileStat]:
        """At everything. A look that shows what the last one did is that one, so that of ten thousand
        nothing is left for the interpreter to keep in order."""
        before: Mapping[str, FileStat] = self._last.looks if self._last is not None else {}
        looks: dict[str, FileStat] = {}
        for name, status in self._blobs.walk():
            seen, known = _SEEN(status), before.get(name)
            looks[name] = known if known is not None and known == seen else FileStat._make(seen)
        return looks

    def _young_ns(self) -> int:
        return int((self._clock.now().timestamp() - YOUNG_S) * 1e9)

    def untouched(self, directory: str, files: Iterable[str]) -> Tree | None:
        """What the last scan found, if by their stats nothing came to a directory or those below it since,
        nothing went, and these files in it are the same. Another may have been written in place."""
        last = self._last
        if last is None:
            return None
        below = (one for one in last.directories if one.startswith(f"{directory}/"))
        names = {directory, *below, *files}
        now = {name: _SEEN(found) for name, found in self._blobs.stats(names).items()}
        before = {name: last.looks[name] for name in names if name in last.looks}
        return last.tree if now == before else None

    def _tree_of(self, looks: Mapping[str, FileStat], told: OnFileRead) -> Tree:
        files = {name: look for name, look in looks.items() if not stat.S_ISDIR(look.mode)}
        scratch = self._scratch(files)
        files = {name: look for name, look in files.items() if name not in scratch}
        tree = self._tree_with(files, told)
        if any(problem.kind in {"twin", "over_quota"} for problem in tree.problems):
            first = {name: files[name] for name in self._recorded() if name in files}
            tree = self._tree_with({**first, **files}, told)
        tree.scratch = sorted(scratch)
        return tree

    def _scratch(self, files: Iterable[str]) -> set[str]:
        found = {name for name in files if is_editor_file(name)}
        return found - set(self._recorded()) if found else found

    def _tree_with(self, files: Mapping[str, FileStat], told: OnFileRead) -> Tree:
        tree = Tree()
        names = _Names()
        seen: dict[str, tuple[Signature, FileState]] = {}
        young = self._young_ns()
        with self._blobs.examining() as examine:
            for name, look in files.items():
                found = self._found(name, look, tree, names, examine, told)
                if isinstance(found, Problem):
                    tree.problems.append(found)
                elif found is not None:
                    state, examined = found
                    _put(tree, WorkspacePath(name), state)
                    if examined.changed_ns < young:
                        seen[name] = self._entry(name, state, examined)
        self.known = seen
        tree.files = dict(sorted(tree.files.items()))
        return tree

    def _found(
        self,
        name: str,
        look: FileStat,
        tree: Tree,
        names: _Names,
        examine: Examine,
        told: OnFileRead,
    ) -> tuple[FileState, FileStat] | Problem | None:
        """What to make of one file; None when it is gone since it was listed."""
        problem = _problem(name, look) or names.problem(name)
        if problem is not None:
            return problem
        if len(tree.files) >= self._quota.files:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.files:,} files"
            )
        if tree.bytes + look.size > self._quota.bytes:
            return Problem(
                name, "over_quota", f"is beyond the quota of {self._quota.bytes:,} bytes"
            )
        try:
            return self._state(name, look, examine, told)
        except NotFound:
            return None
        except OverLimit as error:
            return Problem(name, "over_quota", str(error))
        except Failure as error:
            return Problem(name, "unreadable", str(error))

    def _state(
        self, name: str, look: FileStat, examine: Examine, told: OnFileRead
    ) -> tuple[FileState, FileStat]:
        """With the look at the file that it is the state of."""
        known = self.known.get(name)
        if known is not None and known[0] == look.signature:
            return known[1], look
        data, status = examine(name)
        examined = FileStat._make(_SEEN(status))
        told(name, data)
        self._was_overtaken = self._was_overtaken or examined.signature != look.signature
        return FileState(version_of(data), blob_id(data), len(data)), examined

    def _entry(
        self, name: str, state: FileState, examined: FileStat
    ) -> tuple[Signature, FileState]:
        """Of the stat cache: the very one of the last scan, when nothing changed."""
        known = self.known.get(name)
        return known if known and known[1] is state else (examined.signature, state)


@dataclass(frozen=True, slots=True)
class _Scanned:
    """What a scan has found, and by which looks it can be told that nothing has changed since."""

    tree: Tree
    known: Known
    looks: Mapping[str, FileStat]
    directories: tuple[str, ...]


def _scanned(tree: Tree, known: Known, looks: Mapping[str, FileStat]) -> _Scanned:
    directories = (name for name, look in looks.items() if stat.S_ISDIR(look.mode))
    return _Scanned(tree, known, looks, tuple(directories))


def _put(tree: Tree, path: WorkspacePath, state: FileState) -> None:
    tree.files[path] = state
    tree.bytes += state.size
    if is_conflict(path):
        tree.problems.append(Problem(path, "conflict", "could not be merged"))


class _Names:
    """The names met in one scan, and which of them are twins."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._directories: dict[str, Problem | None] = {"": None}

    def problem(self, name: str) -> Problem | None:
        """Whether the name, or that of a directory on its way, differs from an earlier one in case."""
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


def _problem(name: str, look: FileStat) -> Problem | None:
    """Why a file cannot be kept, whatever else is there."""
    rule = broken_rule(name)
    if rule is not None:
        return Problem(name, "bad_name", rule)
    if not stat.S_ISREG(look.mode):
        return Problem(name, "not_a_file", "is not a regular file")
    if look.links > 1:
        return Problem(name, "not_a_file", "has a second link, which may be another file's name")
    return None
