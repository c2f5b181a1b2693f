"""Commit manual edits: what people change by hand becomes their own revisions, before anything else is
changed.

A person does not announce a save. So a process that is about to change a tree takes the writer lock and
looks first. What differs from the newest revision was changed by hand and is recorded as the person's. If a
lock holder declared a change and died before recording it, the change is recorded as that holder's.

A tree equal to its newest revision is *clean*. As long as no program touches a clean tree, a commit of
manual edits is one stat for each file and takes no lock.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from workspaces.clock import Clock
from workspaces.conditions import ABSENT, Wildcard, is_met
from workspaces.coordination.writer_lock import WAIT_S, HeldLock, Intent, WriterLock
from workspaces.errors import AlreadyExists, Conflict, Failure, NotFound, Refused, Unavailable
from workspaces.history.git.commit import Commit
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.history.history import LOG_ENTRIES_MAX, PUT_BACK, History
from workspaces.ids import Namespace, Version
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.quota_limits import QuotaLimits
from workspaces.revision import Author, RevisionId
from workspaces.storage.blobs import Blob
from workspaces.tree.port import LiveTree
from workspaces.tree.quota import QuotaCheck
from workspaces.tree.scan import Tree, TreeScan
from workspaces.workspace.held_back import HeldBackFiles
from workspaces.workspace.protection import Protection, PutBack, told
from workspaces.workspace.remote_port import Remote

ReadResult = Blob | Failure | None
"""The file that was read, the failure to read it, or None if there is no file."""

EDITED = "was changed by hand, which changes no answer: its first revision is what counts"

PATHS_LOOKED_UP_MAX = 50
"""Most paths looked up one by one. For more, reading the whole tree of a revision is faster."""


@dataclass(frozen=True, slots=True)
class _CleanTree:
    """A tree that equals a revision."""

    tree: Tree
    tip: RevisionId | None


class ManualEdits:
    """The manual edits of one workspace: its tree, its history, and the lock under which both are changed."""

    def __init__(
        self,
        name: str,
        namespace: Namespace,
        *,
        quota: QuotaLimits,
        root: Path,
        blobs: LiveTree,
        history: History,
        lock: WriterLock,
        person: Author,
        clock: Clock,
        protection: Protection | None = None,
    ) -> None:
        """`person` is the author of every change that no lock holder declared."""
        self.protection = protection or Protection()
        """The rules for what a model may not change."""
        self.put_back: Sequence[PutBack] = ()
        """What the last `record` or `record_whole` put back."""
        self._name = name
        self._namespace = namespace
        self._root = root
        self._blobs = blobs
        self._history = history
        self._lock = lock
        self._person = person
        self.held_back = HeldBackFiles(self.protection.gate, history)
        self.tree = TreeScan(
            blobs,
            quota,
            clock,
            recorded=lambda: history.tree(history.tip()),
            hold_back=self.held_back,
        )
        self.quota = QuotaCheck(quota, clock, self.tree)
        self.last_scan = Tree()
        """The result of the last scan under the writer lock."""
        self._clean_tree: _CleanTree | None = None
        """The tree, if the last comparison of the whole tree found it clean. None: something in it was in no
        revision."""
        self._last_commit: _CleanTree | None = None
        """The tree after the last `commit`, if its modes were repaired and it was clean."""
        self._last_rewritten: tuple[Tree, RevisionId | None, list[Problem]] | None = None
        """The tree and the revision for which `_rewritten` was last answered, and its answer."""
        self.on_revision: Callable[[], None] = lambda: None
        """Called after a revision was made here, once the lock is free."""
        self.remote: Remote | None = None
        """None if only this machine has the files."""
        self.are_records_shared = False
        """True if several servers answer the same callers. Then the remote decides every write of theirs."""

    @contextmanager
    def hold(self, by: Author, wait_s: float = WAIT_S) -> Generator[HeldLock]:
        """Hold the writer lock. If its last holder died, first record that holder's changes."""
        before = self._history.tip()
        try:
            with self._locked(by, wait_s) as held:
                yield held
        finally:
            if by.source != "sync" and self._history.tip() != before:
                self.on_revision()

    def commit(self, *, wait_s: float = WAIT_S) -> RevisionId | None:
        """Commit all manual edits and return the newest revision. Files that root put there become readable
        for the user that runs commands afterwards."""
        tip = self._history.tip()
        if self._is_unchanged(tip):
            return tip
        with self.hold(self._person, wait_s):
            if os.geteuid() == 0:
                self._blobs.mend()
            self.record_whole()
            self._last_commit = self._clean_tree
            return self._history.tip()

    def is_clean(self, file: WorkspacePath, directory: str, known: Iterable[str]) -> bool:
        """Return True if a file, and a directory as far as stats show, have no uncommitted edits.
        The stats show that no entry of the directory was added or removed, and that its files in `known` are
        the same. This takes a few dozen stats, where `commit` takes one for each file. An edit in place
        of any other file is left to `commit`."""
        last = self._last_commit
        if last is None or not self._is_here():
            return False
        if self.tree.untouched(directory, known) is not last.tree:
            return False
        return self.object_at(file) == self._history.find(self._history.tip(), file)

    def committed(
        self, expected: Mapping[WorkspacePath, ObjectId | None], *, wait_s: float = WAIT_S
    ) -> tuple[set[WorkspacePath], RevisionId | None]:
        """Commit manual edits of these paths. Return the paths whose committed state equals `expected` (None:
        deleted), and the newest revision. Paths that have changed again since are left out."""
        tip = self._history.tip()
        recorded = self.recorded(expected, tip)
        dirty = tuple(path for path, state in expected.items() if recorded.get(path) != state)
        if dirty:
            with self.hold(self._person, wait_s):
                self.record(dirty)
                recorded.update(dict.fromkeys(dirty))
                tip = self._history.tip()
                recorded.update(self.recorded(dirty, tip))
        return {path for path, state in expected.items() if recorded.get(path) == state}, tip

    def check_precondition(self, path: WorkspacePath, expect: Version | Wildcard) -> Blob | None:
        """Commit manual edits of a file and return it. The caller holds the lock.

        Raises: Conflict when the file is not what `expect` says, AlreadyExists when `expect` is ABSENT and
        there is one.
        """
        current = self.record((path,))[path]
        if isinstance(current, Failure):
            raise current
        version = current.version if current else None
        if not is_met(expect, version):
            if expect is ABSENT:
                raise AlreadyExists("file", path)
            raise Conflict("file", path, expected=expect, actual=version)
        return current

    def record(
        self, paths: Iterable[WorkspacePath], by: Author | None = None
    ) -> dict[WorkspacePath, ReadResult]:
        """Make a revision of those paths that differ from the newest one, by the person or by `by`. Return
        what each path has. The caller holds the lock."""
        current = {path: self._read(path) for path in paths}
        changes = self._differing(current)
        self._leave_out_forbidden(changes, current)
        if None in changes.values():
            changes = self._without_remote_files(changes)
        if changes:
            self._record_changes(changes, current, by)
        return current

    def record_whole(self, by: Author | None = None) -> RevisionId | None:
        """Make a revision of everything in the tree that differs from the newest one. Return None if nothing
        does."""
        changed, deleted = self._uncommitted(self._history.tip())
        current = {path: self._read(path) for path in (*changed, *deleted)}
        changes = self._differing(current, deleted)
        self._leave_out_forbidden(changes, current)
        revision = self._record_changes(changes, current, by)
        if self.put_back:
            self.last_scan = self.tree.scan()
        return revision

    def pending(self) -> list[WorkspacePath]:
        """Return the paths that are new, changed or deleted since the newest revision."""
        changed, deleted = self._uncommitted(self._history.tip())
        return sorted({*changed, *deleted})

    def problems(self, tree: Tree | None = None) -> list[Problem]:
        """Return everything that cannot be kept, here or from the remote. `tree` is the scan to use."""
        tree = tree or self.tree.scan()
        here = (*tree.problems, *self._rewritten(tree))
        if not self._history.is_there:
            here = (*here, Problem(".history", "history", "its directory is missing"))
        here = (*here, *_ahead(self._history.ahead()))
        return [*here, *self._remote_problems()]

    def _remote_problems(self) -> Sequence[Problem]:
        return self.remote.problems() if self.remote is not None else ()

    def _rewritten(self, tree: Tree) -> list[Problem]:
        """Return the files that a person changed though their first revision is what counts.

        Every page that shows problems asks for it, so the last answer is kept.
        """
        tip = self._history.tip()
        if self._last_rewritten is None or self._last_rewritten[:2] != (tree, tip):
            self._last_rewritten = (tree, tip, self._find_rewritten(tree, tip))
        return self._last_rewritten[2]

    def _find_rewritten(self, tree: Tree, tip: RevisionId | None) -> list[Problem]:
        kept = [path for path in tree.files if self.protection.is_kept(path)]
        if not kept:
            return []
        rewritten = list[WorkspacePath]()
        for directory in sorted({path.rpartition("/")[0] for path in kept}):
            log = self._history.log(path=WorkspacePath(directory), limit=LOG_ENTRIES_MAX)
            touched = Counter(path for revision in log for path in revision.paths)
            first = {path: revision.id for revision in log for path in revision.paths}  # the oldest
            newest = self._history.below(tip, directory)
            for path in kept:
                if path not in touched:
                    continue  # it is in no other directory, and in no revision yet
                known = newest.get(path)
                if touched[path] > 1:
                    known = self._history.find(first[path], path)
                if known is not None and known != tree.files[path].object_id:
                    rewritten.append(path)
        return [Problem(path, "edited", EDITED) for path in rewritten]

    def recorded(
        self, paths: Collection[WorkspacePath], revision: RevisionId | None
    ) -> dict[WorkspacePath, ObjectId | None]:
        """Return the state that a revision has of these paths, and maybe of others."""
        if len(paths) > PATHS_LOOKED_UP_MAX:
            return {**self._history.tree(revision)}
        return {path: self._history.find(revision, path) for path in paths}

    def blob(self, path: WorkspacePath) -> Blob | None:
        try:
            return self._blobs.read(path)
        except NotFound:
            return None

    def readable(self, path: WorkspacePath) -> bytes:
        """Return the content of a file that counts for readers: for one that is held back, the last one kept.

        Raises: NotFound; and as the tree does.
        """
        return self.held_back.readable(path, self._blobs.read(path).data)

    def object_at(self, path: WorkspacePath) -> ObjectId | None:
        """Return the object id of the present file. Return None if there is none or it cannot be read."""
        try:
            blob = self.blob(path)
        except Failure:
            return None
        return blob_id(blob.data) if blob else None

    @contextmanager
    def _locked(self, by: Author, wait_s: float) -> Generator[HeldLock]:
        with self._lock.hold(by.name, wait_s=wait_s) as held:
            if not self._blobs.is_at(self._root):
                raise NotFound("workspace", self._name, remedy="it has been deleted")
            if not self._history.is_there:
                raise self._lost_history()
            if held.left_behind is not None:
                self._finish(held.left_behind)
                held.fulfilled()
            yield held

    def _finish(self, intent: Intent) -> None:
        """Record the changes that a lock holder declared before it died."""
        if intent.paths is None:  # a command, which may have changed any file
            self._blobs.mend()
            self.record_whole(intent.author)
        else:
            self.record(intent.paths, intent.author)

    def _lost_history(self) -> Unavailable:
        """Return the failure for a missing history. A new one is never begun silently: the old one may lie in
        a copy or in S3."""
        name = self._name
        remedy = f"`harness sync {name}` fetches it again" if self.remote is not None else PUT_BACK
        reason = f"the directory {self._namespace}.git is missing"
        return Unavailable(f"history of {name}", reason, remedy=remedy)

    def _differing(
        self, current: Mapping[WorkspacePath, ReadResult], deleted: Collection[WorkspacePath] = ()
    ) -> dict[WorkspacePath, bytes | None]:
        """Return the present content of those files that differ from the newest revision."""
        recorded = self.recorded(current, self._history.tip())
        changes: dict[WorkspacePath, bytes | None] = {}
        for path, blob in current.items():
            if isinstance(blob, Refused) and path in deleted:
                blob = None  # a directory of its path was replaced: the file is gone
            if isinstance(blob, Failure):  # a problem: the scan lists it
                continue
            if (blob_id(blob.data) if blob else None) != recorded.get(path):
                changes[path] = blob.data if blob else None
        return changes

    def _leave_out_forbidden(
        self, changes: dict[WorkspacePath, bytes | None], current: dict[WorkspacePath, ReadResult]
    ) -> None:
        """Take the files that are held back out of the changes, and give them the reason in `current`."""
        if not changes or not self.protection.gate.version(is_fresh=True):
            return
        for path, data in [*changes.items()]:
            refusal = self.held_back.refusal(path, data)
            if refusal is not None:
                del changes[path]
                current[path] = refusal

    def _without_remote_files(
        self, changes: Mapping[WorkspacePath, bytes | None]
    ) -> dict[WorkspacePath, bytes | None]:
        """Return the changes without deletions of files that the remote has and that could not be brought
        here. Those were not deleted."""
        held = {problem.path for problem in self._remote_problems()}
        return {
            path: data for path, data in changes.items() if data is not None or path not in held
        }

    def _record_changes(
        self,
        changes: dict[WorkspacePath, bytes | None],
        current: Mapping[WorkspacePath, ReadResult],
        by: Author | None,
    ) -> RevisionId | None:
        """Make a revision of these changes, after what a model may not change was put back in the files."""
        by = by or self._person
        self.put_back = self._put_back(changes, current, by) if self.protection.concerns(by) else ()
        return self._history.record(changes, told(by, self.put_back)) if changes else None

    def _put_back(
        self,
        changes: dict[WorkspacePath, bytes | None],
        current: Mapping[WorkspacePath, ReadResult],
        by: Author,
    ) -> list[PutBack]:
        """Give the files the content that they may have, and the changes too."""
        tip = self._history.tip()
        recorded = self.recorded(changes, tip)
        done: list[PutBack] = []
        for path, after in list(changes.items()):
            known = recorded.get(path)
            before = self._history.read(known) if known else None
            put_back = self.protection.of(path, before, after, by)
            if put_back is None or not self._replace(path, current[path], put_back.data):
                continue
            done.append(put_back)
            changes[path] = put_back.data
            if put_back.data == before:  # nothing of the change is left
                del changes[path]
        return done

    def _replace(self, path: WorkspacePath, current: ReadResult, data: bytes | None) -> bool:
        """Give a file this content. Return False if somebody has just saved it, or it cannot be written."""
        try:
            if data is not None:
                expect = current.token if isinstance(current, Blob) else ABSENT
                self._blobs.write(path, data, expect=expect)
            elif isinstance(current, Blob):
                self._blobs.delete(path, expect=current.token)
        except Failure:
            return False
        return True

    def _read(self, path: WorkspacePath) -> ReadResult:
        try:
            return self.blob(path)
        except Failure as failure:
            return failure

    def _uncommitted(
        self, tip: RevisionId | None
    ) -> tuple[list[WorkspacePath], frozenset[WorkspacePath]]:
        """Return the paths that are new or changed in the tree, and those that have gone from it."""
        recorded = self._history.tree(tip)
        tree = self.last_scan = self.tree.scan()
        changed = [
            path for path, state in tree.files.items() if recorded.get(path) != state.object_id
        ]
        deleted = {path for path in recorded if path not in tree.files}
        self._clean_tree = None if changed or deleted else _CleanTree(tree, tip)
        if deleted:  # except files that exist, here or in the remote, but cannot be kept
            deleted -= {problem.path for problem in (*tree.problems, *self._remote_problems())}
        return changed, frozenset(deleted)

    def _is_unchanged(self, tip: RevisionId | None) -> bool:
        last = self._last_commit
        if last is None or last.tip != tip or not self._is_here():
            return False
        return self.tree.scan() is last.tree

    def _is_here(self) -> bool:
        return self._blobs.is_at(self._root) and self._history.is_there


def _ahead(revisions: Sequence[Commit]) -> Iterator[Problem]:
    """Yield one problem for all revisions: setting the clock right repairs all of them."""
    if revisions:
        last = max(revisions, key=attrgetter("at"))
        more = f" (and {len(revisions) - 1} more)" if len(revisions) > 1 else ""
        detail = (
            f"revision {last.id[:10]} of {last.author}{more} says it was made at {last.at[:16]}, more than a "
            "day ahead of this machine's clock: one of the two clocks is wrong"
        )
        yield Problem(".history", "clock", detail)
