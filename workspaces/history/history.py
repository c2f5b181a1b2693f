"""A workspace's history: its revisions, in a git directory outside the tree.

The git directory lies outside the tree, so that no agent ever reaches its hooks or its configuration.
No git program ever walks the agent's tree either. A revision is made from bytes that the caller has
read through the checked opens of `localfs.safe_open`.

The blob, the changed trees and the commit are written and made durable first (`git.tree_edit`,
`git.objects`). Only then does the branch move, by compare-and-swap (`git.branch`). A crash leaves
unreachable objects, never a branch that points at nothing. The cost of a revision depends on the depth
of the changed paths and the size of their directories, not on the number of files.

The git program (`git.program`) runs where it reads better than this module could: log, diff, blame.
Deliberately absent: an index, a working tree, remotes, `git add`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Unavailable, not_a_revision
from workspaces.history import log, revision_step
from workspaces.history.blame import BlamedLine, blamed_line, parse_porcelain
from workspaces.history.diff import EMPTY_TREE, PATCH_OPTIONS, Difference, parse_patch
from workspaces.history.git import branch, repack
from workspaces.history.git.branch import Branch
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX, bundles
from workspaces.history.git.commit import Commit, commit_bytes, commits_ahead, parse_commit
from workspaces.history.git.objects import (
    TREE_MODE,
    Entries,
    GitObjects,
    ObjectBatch,
    ObjectId,
    sync,
    sync_below,
    unwritable,
)
from workspaces.history.git.program import run_git
from workspaces.history.git.renamed import RenamedRevisions
from workspaces.history.git.tree_edit import After, replace_files
from workspaces.history.git.tree_walk import differing_files, files_below
from workspaces.history.log import RevisionChanges
from workspaces.history.revision_step import LaterChange, RevisionStep
from workspaces.history.safe_git_command import check_git_command
from workspaces.history.source import stamps_before
from workspaces.paths import PARTS_MAX, WorkspacePath, folded
from workspaces.revision import Author, FileChange, Revision, RevisionId, merge_message, message
from workspaces.timestamp import AHEAD_MAX, Stamp, at_most, moment_of, next_stamp

if TYPE_CHECKING:
    from workspaces.history.git.quarantine import Quarantine
    from workspaces.history.git.rewrite import Redaction, RewrittenHistory

HEAD: Final = "head"
"""The view of the present files. Any other view is a revision's id."""

View = str

PUT_BACK = (
    "restore it from a copy of the home, or create an empty history in its place: "
    "git init --bare --template= --initial-branch=main"
)

LOG_ENTRIES_MAX = 10_000

COMMITS_KEPT = 64
"""Commits in the cache. A revision never changes, and callers read the newest again and again."""

WHOLE_TREES_KEPT = 1
"""Whole trees in the cache. One sync reads the newest tree several times. Ten thousand files take 3 MB."""

STEPS_BACK = 8
"""Ancestors that `descends` reads itself before it starts git. The revisions of one turn are made one on
top of the other, so this usually finds the answer."""

_HEXADECIMAL = re.compile(r"[0-9a-f]{4,40}")


class History:
    """A git directory with its revisions. Any thread may read. Only the holder of the writer lock may
    call `record`."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._objects = GitObjects(directory / "objects")
        self._branch = Branch(directory)
        self._commits = lru_cache(COMMITS_KEPT)(self._read_commit)
        self._trees = lru_cache(WHOLE_TREES_KEPT)(self._read_tree)
        self._folded = lru_cache(PARTS_MAX)(self._read_folded)  # one for each directory of a path
        self._renamed = RenamedRevisions(directory)
        self._newest: Commit | None = None
        """The last commit that this object made. Callers ask for it at once, so it is not read from disk."""

    @classmethod
    def create(cls, directory: Path, clock: Clock) -> History:
        """Create an empty history. The directory appears complete or not at all."""
        unfinished = directory.with_name(f"{directory.name}.new-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run_git(
            "init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(unfinished)
        )
        try:
            sync_below(unfinished)  # `git init` does not flush its files
            unfinished.rename(directory)
            sync(directory.parent)
        except OSError as error:
            raise unwritable(error) from error
        return cls(directory, clock)

    @property
    def is_there(self) -> bool:
        """Return False if the directory was lost. Callers must then not write as if there had been none."""
        return (self._directory / "HEAD").exists()

    @contextmanager
    def recreate(self) -> Generator[History]:
        """Replace a lost history by a new one, which the block fills. If the block fails, replace nothing."""
        replacement = self._directory.with_name(f"{self._directory.name}.again")
        shutil.rmtree(replacement, ignore_errors=True)
        yield History.create(replacement, self._clock)
        try:
            replacement.rename(self._directory)
            sync(self._directory.parent)
        except OSError as error:
            raise unwritable(error) from error

    def tip(self) -> RevisionId | None:
        """Return the newest revision, or None before the first."""
        return self._branch.tip()

    def resolve(self, view: View) -> RevisionId | None:
        """Return the revision that a view shows. An abbreviated id is completed.

        Raises: Refused when the view is no hexadecimal id; NotFound when no revision has it."""
        if view in (HEAD, tip := self.tip()):
            return tip
        if not _HEXADECIMAL.fullmatch(view):
            raise not_a_revision(view)
        wanted = f"{view}^{{commit}}"
        try:
            printed = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", wanted)
        except Unavailable:
            present = self.renamed(view)
            if present is None:
                raise NotFound("revision", view, remedy="`harness log` lists them") from None
            return present
        return RevisionId(printed.decode().strip())

    def tree(self, revision: RevisionId | None) -> Mapping[WorkspacePath, ObjectId]:
        """Return every file of a revision, ascending by path. The mapping is cached and shared: callers must
        not change it."""
        return {} if revision is None else self._trees(revision)

    def below(self, revision: RevisionId | None, directory: str) -> dict[WorkspacePath, ObjectId]:
        """Return every file of a revision below one directory, ascending by path."""
        files: list[tuple[WorkspacePath, ObjectId]] = []
        for name, entry in self._directory_at(revision, directory).items():
            path = f"{directory}/{name}"
            if entry.mode == TREE_MODE:
                files += files_below(self._objects, entry.id, f"{path}/")
            else:
                files.append((WorkspacePath(path), entry.id))
        return dict(sorted(files))

    def holds(self, revision: RevisionId) -> bool:
        """Return True if a revision is the newest one or still one of its ancestors."""
        tip = self.tip()
        if tip is None or tip == revision:
            return tip == revision
        try:
            return not self._git("rev-list", "-n1", revision, f"^{tip}", "--")
        except Unavailable:  # this git directory does not have the revision
            return False

    def has(self, revision: RevisionId) -> bool:
        """Return True if this git directory can read the revision, reachable from a branch or not."""
        try:
            newest = self._newest
            return (newest is not None and newest.id == revision) or bool(self._commits(revision))
        except (Failure, StopIteration, ValueError):
            return False

    def descends(self, revision: RevisionId | None, ancestor: RevisionId | None) -> bool:
        """Return True if `revision` is `ancestor` or descends from it. This git directory must have both."""
        if ancestor is None or ancestor == revision:
            return True
        if revision is None:
            return False
        commit = self.commit(revision)
        for _ in range(STEPS_BACK):
            if ancestor in commit.parents:
                return True
            if len(commit.parents) != 1:  # a merge, or the first revision: git walks the rest
                break
            commit = self.commit(commit.parents[0])
        return not self._git("rev-list", "-n1", ancestor, f"^{revision}", "--")

    def fork(self, one: RevisionId, other: RevisionId) -> RevisionId | None:
        """Return the merge base: the newest common ancestor of both revisions, or None without one."""
        try:
            return RevisionId(self._git("merge-base", one, other).decode().strip())
        except Unavailable:
            return None

    def differences(
        self, older: RevisionId | None, newer: RevisionId | None
    ) -> dict[WorkspacePath, tuple[ObjectId | None, ObjectId | None]]:
        """Return each path whose object differs, with its older and newer object. None stands for no file.
        Equal directories are not read."""
        if older is None:
            return {path: (None, blob) for path, blob in self.tree(newer).items()}
        before, after = self.commit(older).tree, self.commit(newer).tree if newer else None
        return dict(sorted(differing_files(self._objects, before, after)))

    def find(self, revision: RevisionId | None, path: WorkspacePath) -> ObjectId | None:
        """Return the blob of one file of a revision. Only the directories on its path are read."""
        directory, _, leaf = path.rpartition("/")
        entry = self._directory_at(revision, directory).get(leaf)
        return None if entry is None or entry.mode == TREE_MODE else entry.id

    def named_alike(self, revision: RevisionId | None, directory: str, name: str) -> Sequence[str]:
        """Return the names in a directory (`""` is the root) that equal `name` except for their case."""
        return self._folded(revision, directory).get(folded(name), ())

    def read(self, object_id: ObjectId) -> bytes:
        return self._objects.read(object_id)

    def keep(self, data: bytes) -> ObjectId:
        """Keep a blob that no revision has, until the next packing. The caller holds the writer lock."""
        batch = self._objects.batch()
        blob = batch.add("blob", data)
        batch.sync()
        return blob

    def commit(self, revision: RevisionId) -> Commit:
        """Return a revision. One that was rewritten is also found by an id that it had before."""
        newest = self._newest
        if newest and newest.id == revision:
            return newest
        try:
            return self._commits(revision)
        except Unavailable:
            present = self.renamed(revision)
            if present is None:
                raise
            return self._commits(present)

    def renamed(self, revision: str) -> RevisionId | None:
        """Return the revision that had this id, whole or abbreviated, before the history was rewritten."""
        return self._renamed.find(revision, self.tip())

    def next_stamp(self) -> Stamp:
        """Return the stamp that a revision made now would have."""
        tip = self.tip()
        return next_stamp(self._clock.now(), *((self.commit(tip).at,) if tip else ()))

    def believable(self, stamp: Stamp) -> Stamp:
        """Return the stamp to count ages from, for a revision first seen now: at most a day ahead."""
        return at_most(stamp, self._clock.now())

    def ahead(self) -> list[Commit]:
        """Return the revisions with a stamp more than a day in the future, as a wrong clock makes them.
        Merges that repeat a parent's stamp are left out. At most `REVISIONS_AHEAD_MAX` commits are read."""
        return commits_ahead(
            self._commit_or_none(self.tip()), self.commit, self._clock.now() + AHEAD_MAX
        )

    def record(
        self,
        changes: Mapping[WorkspacePath, bytes | None],
        author: Author,
        *,
        beside: Mapping[WorkspacePath, bytes] | None = None,
        beside_by: Author | None = None,
        at: Stamp | None = None,
    ) -> RevisionId:
        """Make a revision on top of the newest one. It sets these files; None removes a file. `at` is its
        stamp, unless the newest revision's is as late.

        `beside` holds the files of the other side of a merge. They become a sibling of the newest revision,
        by `beside_by`, which the new one merges. So both versions stay, and each line keeps its author."""
        tip = self.tip()
        batch = self._objects.batch()
        parent = self._commit_or_none(tip)
        parents = [parent] if parent else []
        if beside:
            parents.append(self._write_sibling(beside, beside_by or author, parents))
        commit = self._add_commit(batch, changes, author, parents, at)
        batch.sync()
        self._branch.move(commit.id, expect=tip)
        self._newest = commit
        return commit.id

    def follow(
        self,
        theirs: RevisionId,
        differing: Mapping[WorkspacePath, After],
        author: Author,
        *,
        beside: Mapping[WorkspacePath, bytes] | None = None,
        beside_by: Author | None = None,
        is_replaced: bool = False,
    ) -> RevisionId:
        """Move the branch to `theirs`, or to a new revision that descends from ours and theirs.
        `differing` holds the files that must differ from theirs. `beside` holds versions that sync met and
        that neither history contains; their revision is by `beside_by`.

        Ours is an ancestor of theirs and no file differs: the branch moves to theirs unchanged.
        Ours is an ancestor of theirs and files differ: they become a revision on top of theirs.
        Theirs replaces ours (`is_replaced_by`): so do they, and ours is erased from the disk later.
        Otherwise the new revision is a merge. It depends on its parents and its files alone (parents
        sorted, the later of their stamps). So every machine makes the same merge."""
        ours = self.tip()
        batch = self._objects.batch()
        onto = self.commit(theirs)
        if beside:
            onto = self._write_sibling(beside, beside_by or author, [onto])
        if is_replaced:
            repack.note_erasure(self._directory)
        # fast-forward, perhaps with local changes
        if ours is None or is_replaced or self.descends(theirs, ours):
            commit = self._add_commit(batch, differing, author, [onto]) if differing else onto
        else:  # both sides have revisions that the other lacks
            commit = self._add_merge(batch, (self.commit(ours), onto), onto, differing, author)
        batch.sync()
        self._branch.move(commit.id, expect=ours)
        self._newest = commit
        return commit.id

    def bundles(
        self, tip: RevisionId, known: Collection[RevisionId], *, bytes_max: int = BUNDLE_BYTES_MAX
    ) -> Iterator[tuple[RevisionId, bytes]]:
        """Yield bundles of what a machine with `known` lacks, oldest first, each with its newest revision.
        Raises: OverLimit when a single revision is too large."""
        return bundles(self._directory, tip, known, bytes_max=bytes_max)

    def quarantine(self) -> Quarantine:
        """Return a new quarantine for bundles from other machines."""
        from workspaces.history.git.quarantine import Quarantine

        return Quarantine(self._directory)

    def receive(self, quarantine: Quarantine, revision: RevisionId) -> None:
        """Move the checked objects of a quarantine here. Check that everything reachable from `revision` is
        then present. The caller holds the writer lock, so nothing is pruned in between.

        Raises: Unavailable when an object is missing or cannot be written."""
        quarantine.admit()
        if quarantine.is_self_contained(revision):  # git has checked that already
            return
        tip = self.tip()
        wanted = [revision, *([f"^{tip}"] if tip else []), "--"]
        self._git("rev-list", "--objects", "--quiet", "--end-of-options", *wanted)

    def log(
        self,
        *,
        path: WorkspacePath | None = None,
        start: View = HEAD,
        since: RevisionId | None = None,
        skip: int = 0,
        limit: int = 50,
    ) -> list[Revision]:
        """Return revisions, newest first, without the first `skip`. With a path, only the revisions that
        touched it. With `since`, only the revisions that `start` has gained since then."""
        if self.tip() is None:
            return []
        out = self._git(
            "log",
            "-z",
            "--name-only",
            "--no-renames",
            log.FORMAT,
            f"--skip={skip}",
            f"--max-count={min(limit, LOG_ENTRIES_MAX)}",
            "--end-of-options",
            branch.NAME if start == HEAD else start,
            *([f"^{since}"] if since else []),
            "--",
            *([path] if path else []),
        )
        return log.parse_log(out)

    def later_changes(self, since: RevisionId, path: WorkspacePath) -> list[LaterChange]:
        """Return the revisions since one that changed a file, parents first."""
        tip = self.tip() or since
        return revision_step.read_later(self._git, self.find, path, since=since, tip=tip)

    def changes(
        self,
        *,
        path: WorkspacePath | None = None,
        start: View = HEAD,
        skip: int = 0,
        limit: int = 50,
        holding: str | None = None,
    ) -> list[RevisionChanges]:
        """Return revisions with their changes, newest first, without the first `skip`. A merge is compared
        with its first parent.

        With `holding`, which is ASCII, return only revisions and files with changed lines that hold this
        text, in any case."""
        revision = self.resolve(start)
        if revision is None:
            return []
        out = self._git(
            "log",
            *PATCH_OPTIONS,
            "--diff-merges=first-parent",
            log.FORMAT,
            f"--skip={skip}",
            f"--max-count={min(limit, LOG_ENTRIES_MAX)}",
            *(["--regexp-ignore-case", f"-G{log.literal(holding)}"] if holding else []),
            "--end-of-options",
            revision,
            "--",
            *([path] if path else []),
        )
        return log.parse_changes(out, self._objects.size)

    def show(self, view: View) -> RevisionChanges:
        """Return one revision with its changes.

        Raises: NotFound when there is no such revision."""
        changes = self.changes(start=view, limit=1)
        if not changes:
            raise NotFound("revision", view, remedy="the workspace has no revisions yet")
        return changes[0]

    def diff(
        self, older: View | None, newer: View = HEAD, *, path: WorkspacePath | None = None
    ) -> Difference:
        """Return the difference from `older` to `newer`. None stands for before the first revision."""
        before = self.resolve(older) if older is not None else None
        after = self.resolve(newer)
        out = self._git(
            "diff-tree",
            "-r",
            *PATCH_OPTIONS,
            "--end-of-options",
            before or EMPTY_TREE,
            after or EMPTY_TREE,
            "--",
            *([path] if path else []),
        )
        files = parse_patch(out.decode(errors="replace"), self._objects.size)
        return Difference(before, after, files)

    def blame(self, path: WorkspacePath, view: View = HEAD) -> list[BlamedLine]:
        """Return every line of a file with its author, stamp, conversation and turn.

        Raises: NotFound when the revision has no such file."""
        revision = self.resolve(view)
        if revision is None or self.find(revision, path) is None:
            raise NotFound("file", path)
        lines = parse_porcelain(
            self._git("blame", "--porcelain", "--encoding=none", revision, "--", path)
        )
        commits = {of: self.commit(of) for of in {of for of, _ in lines}}
        return [
            blamed_line(number, data, commits[of]) for number, (of, data) in enumerate(lines, 1)
        ]

    def steps(self, known: RevisionId | None, tip: RevisionId) -> list[RevisionStep] | None:
        """Return the steps from a known revision to `tip`, ascending, or None if it is no ancestor of `tip`.
        An ancestor off the first-parent line gives one step over everything."""
        return revision_step.read_steps(self._git, known, tip, lambda: self.commit(tip).at)

    def ask(self, arguments: Sequence[str]) -> bytes:
        """Run a git command line that only reads, and return its output.

        Raises: Refused for any other command line (`safe_git_command`)."""
        return self._git(*check_git_command(arguments))

    @property
    def needs_packing(self) -> bool:
        return repack.needs_packing(self._directory / "objects")

    def pack(self) -> None:
        """Move loose objects into one pack. The caller holds the writer lock. Readers are not disturbed."""
        repack.pack(self._directory)

    def rewrite(self, redaction: Redaction, *, is_dry: bool = False) -> RewrittenHistory | None:
        """Write this history without what is redacted, beside the branch. Return its newest revision."""
        from workspaces.history.git.rewrite import rewrite_history

        tip = self.tip()
        return rewrite_history(self._directory, tip, redaction, is_dry=is_dry) if tip else None

    def is_replaced_by(self, theirs: RevisionId) -> bool:
        """Return True if a text was taken out of `theirs` since both sides last had the same revisions. Ours
        may still hold it. This git directory must have both."""
        tip = self.tip()
        if tip is None or self.descends(theirs, tip):
            return False
        return self._renamed.has_rewritten(theirs, tip)

    def replace(self, tip: RevisionId, *, expect: RevisionId) -> None:
        """Move the branch to a rewritten history. `erase_replaced` must follow. The caller holds the writer
        lock.

        Raises: Conflict when the branch is not at `expect`."""
        repack.note_erasure(self._directory)
        if tip != expect:
            self._branch.move(tip, expect=expect)

    @property
    def is_replaced(self) -> bool:
        """Return True if this directory may still hold a history that was replaced."""
        return repack.is_erasure_noted(self._directory)

    def erase_replaced(self) -> None:
        """Erase from the disk whatever the branch does not reach. Each packing does so again until
        `end_erasure`. The caller holds the writer lock."""
        repack.erase_unreachable(self._directory)
        self._newest, self._objects = None, GitObjects(self._directory / "objects")
        self._commits.cache_clear()
        self._trees.cache_clear()
        self._folded.cache_clear()

    def end_erasure(self) -> None:
        """Note that a history that was replaced is erased everywhere."""
        repack.end_erasure(self._directory)

    def _write_sibling(
        self, changes: Mapping[WorkspacePath, After], author: Author, parents: Sequence[Commit]
    ) -> Commit:
        """Write a revision that the next one descends from. It comes first: that one reads its objects."""
        batch = self._objects.batch()
        commit = self._add_commit(batch, changes, author, parents)
        batch.sync()
        return commit

    def _add_merge(
        self,
        batch: ObjectBatch,
        both: Sequence[Commit],
        base: Commit,
        changes: Mapping[WorkspacePath, After],
        author: Author,
    ) -> Commit:
        parents = sorted(both, key=attrgetter("id"))
        at = max(parent.at for parent in both)
        tree = replace_files(changes, base.tree, self._objects, batch) if changes else base.tree
        text = merge_message([parent.id for parent in parents], author, at)
        data = commit_bytes(tree, parents, author, at, text)
        return parse_commit(RevisionId(batch.commit(data)), data)

    def _add_commit(
        self,
        batch: ObjectBatch,
        changes: Mapping[WorkspacePath, After],
        author: Author,
        parents: Sequence[Commit],
        at: Stamp | None = None,
    ) -> Commit:
        """Add a revision to the batch: the first parent's files with these changes. No branch points at it
        yet."""
        first = parents[0] if parents else None
        now = self._clock.now() if at is None else moment_of(at)
        before = [*(parent.at for parent in parents), *stamps_before(author.trailers)]
        at = next_stamp(now, *before)
        file_changes = [
            FileChange(
                path, self._read_at(first.id if first else None, path), self._bytes_of(after)
            )
            for path, after in sorted(changes.items())
        ]
        tree = replace_files(changes, first.tree if first else None, self._objects, batch)
        data = commit_bytes(tree, parents, author, at, message(file_changes, author, at))
        return parse_commit(RevisionId(batch.commit(data)), data)

    def _read_commit(self, revision: RevisionId) -> Commit:
        return parse_commit(revision, self._objects.read(revision))

    def _commit_or_none(self, revision: RevisionId | None) -> Commit | None:
        return self.commit(revision) if revision else None

    def _directory_at(self, revision: RevisionId | None, directory: str) -> Entries:
        if revision is None:
            return {}
        entries = self._objects.entries(self.commit(revision).tree)
        for part in directory.split("/") if directory else ():
            entry = entries.get(part)
            if entry is None or entry.mode != TREE_MODE:
                return {}
            entries = self._objects.entries(entry.id)
        return entries

    def _read_folded(
        self, revision: RevisionId | None, directory: str
    ) -> Mapping[str, Sequence[str]]:
        """Return the names in a directory, grouped by their case-folded form."""
        names: dict[str, list[str]] = {}
        for name in self._directory_at(revision, directory):
            names.setdefault(folded(name), []).append(name)
        return names

    def _read_at(self, revision: RevisionId | None, path: WorkspacePath) -> bytes | None:
        blob = self.find(revision, path)
        return self.read(blob) if blob else None

    def _bytes_of(self, after: After) -> bytes | None:
        return self.read(after) if isinstance(after, str) else after

    def _read_tree(self, revision: RevisionId) -> dict[WorkspacePath, ObjectId]:
        return dict(sorted(files_below(self._objects, self.commit(revision).tree)))

    def _git(self, *arguments: str) -> bytes:
        return run_git(f"--git-dir={self._directory}", *arguments)
