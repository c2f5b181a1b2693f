"""A workspace's history: its revisions, in a git directory outside the tree.

Outside, so that no agent ever reaches its hooks or its configuration; and no program of git's ever
walks the agent's tree: a revision is made from bytes that the caller has read through the path door.
Blob, changed trees and commit are written and made durable first (`graft`, `objects`), and only then
the branch moves, by compare-and-swap (`branch`). A crash leaves objects that
nothing points at, never a branch that points at nothing. What a revision costs depends on the depth
of the changed paths and the size of their directories, not on the number of files.

For what git reads better than we could (log, diff, blame) the git program is asked (`git`).

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
from typing import Final

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Refused, Unavailable
from workspaces.history import log
from workspaces.history.blame import BlamedLine, blamed_line, parse_porcelain
from workspaces.history.diff import EMPTY_TREE, PATCH_OPTIONS, Difference, parse_patch
from workspaces.history.git import branch
from workspaces.history.git.branch import Branch
from workspaces.history.git.bundle import BUNDLE_BYTES_MAX, bundles
from workspaces.history.git.commit import Commit, commit_bytes, parse_commit
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
from workspaces.history.git.quarantine import Quarantine
from workspaces.history.git.repack import needs_packing, pack
from workspaces.history.git.tree_edit import After, replace_files
from workspaces.history.log import RevisionChanges
from workspaces.history.revision_step import RAW_OPTIONS, RevisionStep, parse_raw, parse_steps
from workspaces.history.safe_git_command import check_git_command
from workspaces.paths import PARTS_MAX, WorkspacePath, folded
from workspaces.revision import Author, FileChange, Revision, RevisionId, merge_message, message
from workspaces.timestamp import AHEAD_MAX, Stamp, at_most, next_stamp, stamp_of

HEAD: Final = "head"
"""The view of what is there now. Any other view is a revision's id."""

View = str

PUT_BACK = (
    "put it back from a copy of the home; or begin a new one in its place: "
    "git init --bare --template= --initial-branch=main"
)

LOG_ENTRIES_MAX = 10_000
REVISIONS_AHEAD_MAX = 1_000

COMMITS_KEPT = 64
"""A revision never changes, and the newest is asked for again and again."""

WHOLE_TREES_KEPT = 1
"""One sync asks for all of the newest one several times. Ten thousand files of it take three megabytes."""

STEPS_BACK = 8
"""Revisions of one turn, each made on top of the other: nobody starts git to find what came before them."""

_HEXADECIMAL = re.compile(r"[0-9a-f]{4,40}")


class History:
    """One git directory. Reading is safe from any thread; `record` only under the writer lock."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._objects = GitObjects(directory / "objects")
        self._branch = Branch(directory)
        self._commits = lru_cache(COMMITS_KEPT)(self._read_commit)
        self._trees = lru_cache(WHOLE_TREES_KEPT)(self._read_tree)
        self._folded = lru_cache(PARTS_MAX)(self._read_folded)  # one for each directory of a path
        self._newest: Commit | None = None
        """That was made here: it is asked for at once, and need not come from the disk."""

    @classmethod
    def create(cls, directory: Path, clock: Clock) -> History:
        """An empty history; it appears whole or not at all."""
        unfinished = directory.with_name(f"{directory.name}.new-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        run_git(
            "init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(unfinished)
        )
        try:
            sync_below(unfinished)  # which `git init` leaves to others
            unfinished.rename(directory)
            sync(directory.parent)
        except OSError as error:
            raise unwritable(error) from error
        return cls(directory, clock)

    @property
    def is_there(self) -> bool:
        """False when its directory was lost: then nothing may be written as if there had been none."""
        return (self._directory / "HEAD").exists()

    @contextmanager
    def made_again(self) -> Generator[History]:
        """In the place of one that was lost, once the block has filled it; not at all when it fails."""
        beside = self._directory.with_name(f"{self._directory.name}.again")
        shutil.rmtree(beside, ignore_errors=True)
        yield History.create(beside, self._clock)
        try:
            beside.rename(self._directory)
            sync(self._directory.parent)
        except OSError as error:
            raise unwritable(error) from error

    def tip(self) -> RevisionId | None:
        """The newest revision; None before the first."""
        return self._branch.tip()

    def resolve(self, view: View) -> RevisionId | None:
        """The revision that a view shows. An abbreviated id is completed; an unknown one NotFound."""
        if view == HEAD:
            return self.tip()
        if not _HEXADECIMAL.fullmatch(view):
            raise Refused("revision", view, "is not the hexadecimal id of a revision")
        try:
            found = self._git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", view + "^{commit}"
            )
        except Unavailable:
            raise NotFound("revision", view, remedy="`harness log` lists them") from None
        return RevisionId(found.decode().strip())

    def tree(self, revision: RevisionId | None) -> Mapping[WorkspacePath, ObjectId]:
        """Every file of a revision, ascending by path. To be looked at only: others get the same one."""
        return {} if revision is None else self._trees(revision)

    def below(self, revision: RevisionId | None, directory: str) -> dict[WorkspacePath, ObjectId]:
        """Every file of a revision below one directory, ascending by path."""
        found: list[tuple[WorkspacePath, ObjectId]] = []
        for name, entry in self._directory_at(revision, directory).items():
            path = f"{directory}/{name}"
            if entry.mode == TREE_MODE:
                found += self._files(entry.id, f"{path}/")
            else:
                found.append((WorkspacePath(path), entry.id))
        return dict(sorted(found))

    def holds(self, revision: RevisionId) -> bool:
        """Whether a revision still belongs to what the newest one has grown from."""
        tip = self.tip()
        if tip is None or tip == revision:
            return tip == revision
        try:
            return not self._git("rev-list", "-n1", revision, f"^{tip}", "--")
        except Unavailable:  # it is not there at all
            return False

    def has(self, revision: RevisionId) -> bool:
        """Whether it can be read here, reached by anything or not."""
        try:
            self.commit(revision)
        except (Failure, StopIteration, ValueError):
            return False
        return True

    def descends(self, revision: RevisionId | None, ancestor: RevisionId | None) -> bool:
        """Whether all of `ancestor` is in `revision`; both are here."""
        if ancestor is None or ancestor == revision:
            return True
        if revision is None:
            return False
        line = self.commit(revision)
        for _ in range(STEPS_BACK):
            if ancestor in line.parents:
                return True
            if len(line.parents) != 1:
                break
            line = self.commit(line.parents[0])
        return not self._git("rev-list", "-n1", ancestor, f"^{revision}", "--")

    def fork(self, one: RevisionId, other: RevisionId) -> RevisionId | None:
        """The newest revision that both have grown from; None where there is none."""
        try:
            return RevisionId(self._git("merge-base", one, other).decode().strip())
        except Unavailable:
            return None

    def differences(
        self, older: RevisionId | None, newer: RevisionId | None
    ) -> dict[WorkspacePath, tuple[ObjectId | None, ObjectId | None]]:
        """What each path has in both where that is not the same. Equal directories are not looked into."""
        if older is None:
            return {path: (None, of) for path, of in self.tree(newer).items()}
        before, after = self.commit(older).tree, self.commit(newer).tree if newer else None
        return dict(sorted(self._differing(before, after, "")))

    def find(self, revision: RevisionId | None, path: WorkspacePath) -> ObjectId | None:
        """One file of a revision, looked up along its path alone."""
        directory, _, leaf = path.rpartition("/")
        found = self._directory_at(revision, directory).get(leaf)
        return None if found is None or found.mode == TREE_MODE else found.id

    def named_alike(self, revision: RevisionId | None, directory: str, name: str) -> Sequence[str]:
        """Return the names in a directory (`""` is the root) that are `name` but for their case."""
        return self._folded(revision, directory).get(folded(name), ())

    def read(self, object_id: ObjectId) -> bytes:
        return self._objects.read(object_id)

    def keep(self, data: bytes) -> ObjectId:
        """What is in no revision, for as long as nobody tidies up. Under the writer lock."""
        batch = self._objects.batch()
        kept = batch.add("blob", data)
        batch.sync()
        return kept

    def commit(self, revision: RevisionId) -> Commit:
        newest = self._newest
        return newest if newest and newest.id == revision else self._commits(revision)

    def next_stamp(self) -> Stamp:
        """What a revision that is made now would have."""
        tip = self.tip()
        return next_stamp(self._clock.now(), *((self.commit(tip).at,) if tip else ()))

    def believable(self, stamp: Stamp) -> Stamp:
        """Return the stamp of a revision that is met now, as time is counted from it."""
        return at_most(stamp, self._clock.now())

    def ahead(self) -> list[Commit]:
        """Return revisions that say they were made more than a day from now: one of two clocks is wrong. Not
        the merges that repeat a parent's stamp. At most REVISIONS_AHEAD_MAX are looked at."""
        latest = self._clock.now() + AHEAD_MAX
        newest = self._known(self.tip())
        waiting = [newest] if newest else []
        met: dict[RevisionId, Commit] = {}
        while waiting and len(met) < REVISIONS_AHEAD_MAX:
            commit = waiting.pop()
            # nothing before it was committed later: as a rule this ends at the newest revision
            if commit.committed < int(latest.timestamp()) or commit.id in met:
                continue
            met[commit.id] = commit
            waiting += map(self.commit, commit.parents)
        repeated = {
            one.id
            for one in met.values()
            if len(one.parents) > 1 and any(self.commit(of).at == one.at for of in one.parents)
        }
        return [one for one in met.values() if one.at > stamp_of(latest) and one.id not in repeated]

    def record(
        self,
        changes: Mapping[WorkspacePath, bytes | None],
        author: Author,
        *,
        beside: Mapping[WorkspacePath, bytes] | None = None,
    ) -> RevisionId:
        """A revision that sets these files, or with None removes them, on top of the newest one.

        `beside`: what the other side of a merge had. It becomes a revision beside the newest one, and
        this one the merge of the two, so that both versions stay and each line keeps its author."""
        tip = self.tip()
        batch = self._objects.batch()
        parent = self._known(tip)
        parents = [parent] if parent else []
        if beside:
            parents.append(self._beside(beside, author, parents))
        made = self._add(batch, changes, author, parents)
        batch.sync()
        self._branch.move(made.id, expect=tip)
        self._newest = made
        return made.id

    def follow(
        self,
        theirs: RevisionId,
        differing: Mapping[WorkspacePath, After],
        author: Author,
        *,
        beside: Mapping[WorkspacePath, bytes] | None = None,
    ) -> RevisionId:
        """The newest revision becomes theirs, or one that both ours and theirs lead to. `differing`: where
        the files are not as theirs; `beside`: versions that were met and are in neither.

        Ours is in theirs and nothing differs: it is theirs, as it was made. Ours is in theirs: what
        differs is a revision on top of it. Else it is a merge, which is a function of its parents and
        the files alone (parents sorted, the later of their stamps), and so the same on every machine."""
        ours = self.tip()
        batch = self._objects.batch()
        onto = self.commit(theirs)
        if beside:
            onto = self._beside(beside, author, [onto])
        if ours is None or self.descends(theirs, ours):
            made = self._add(batch, differing, author, [onto]) if differing or beside else onto
        else:
            made = self._merge(batch, (self.commit(ours), onto), onto, differing, author)
        batch.sync()
        self._branch.move(made.id, expect=ours)
        self._newest = made
        return made.id

    def bundles(
        self, tip: RevisionId, known: Collection[RevisionId], *, bytes_max: int = BUNDLE_BYTES_MAX
    ) -> Iterator[tuple[RevisionId, bytes]]:
        """What others lack who have `known`, the oldest first; of each the newest revision. OverLimit."""
        return bundles(self._directory, tip, known, bytes_max=bytes_max)

    def quarantine(self) -> Quarantine:
        """For what comes from elsewhere."""
        return Quarantine(self._directory)

    def receive(self, quarantine: Quarantine, revision: RevisionId) -> None:
        """Take over what was looked at, and make sure that everything `revision` leads to is here then.
        Under the writer lock: nothing is pruned in between. Unavailable."""
        quarantine.admit()
        if quarantine.leads_nowhere_else(revision):
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
        limit: int = 50,
    ) -> list[Revision]:
        """Newest first; with a path only the revisions that touched it. `since`: only what `start` has grown
        by since that revision."""
        if self.tip() is None:
            return []
        out = self._git(
            "log",
            "-z",
            "--name-only",
            "--no-renames",
            log.FORMAT,
            f"--max-count={min(limit, LOG_ENTRIES_MAX)}",
            "--end-of-options",
            branch.NAME if start == HEAD else start,
            *([f"^{since}"] if since else []),
            "--",
            *([path] if path else []),
        )
        return log.parse_log(out)

    def changes(
        self, *, path: WorkspacePath | None = None, start: View = HEAD, limit: int = 50
    ) -> list[RevisionChanges]:
        """Revisions and what each did, newest first; of a merge, what it did to its first parent."""
        revision = self.resolve(start)
        if revision is None:
            return []
        out = self._git(
            "log",
            *PATCH_OPTIONS,
            "--diff-merges=first-parent",
            log.FORMAT,
            f"--max-count={min(limit, LOG_ENTRIES_MAX)}",
            "--end-of-options",
            revision,
            "--",
            *([path] if path else []),
        )
        return log.parse_changes(out)

    def show(self, view: View) -> RevisionChanges:
        """One revision and what it did."""
        changes = self.changes(start=view, limit=1)
        if not changes:
            raise NotFound("revision", view, remedy="nothing has been written yet")
        return changes[0]

    def diff(
        self, older: View | None, newer: View = HEAD, *, path: WorkspacePath | None = None
    ) -> Difference:
        """From `older`, or with None from before the first revision, to `newer`."""
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
        return Difference(before, after, parse_patch(out.decode(errors="replace")))

    def blame(self, path: WorkspacePath, view: View = HEAD) -> list[BlamedLine]:
        """Every line of a file with who wrote it, when, and in which conversation and turn."""
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
        """From a revision that is known to `tip`, ascending; None when it is no ancestor."""
        wanted = ["--end-of-options", tip, *([f"^{known}"] if known else []), "--"]
        walk = ("--first-parent", "--reverse", "--diff-merges=first-parent", log.FORMAT)
        try:
            found = parse_steps(self._git("log", *walk, *RAW_OPTIONS, *wanted))
            if not found or found[0].before == known:
                return found
            if known is None or self._git("rev-list", "-n1", known, f"^{tip}", "--"):
                return None
        except Unavailable:  # `known` is from a history that was replaced
            if known is None:
                raise
            return None
        raw = self._git("diff-tree", "-r", *RAW_OPTIONS, known, tip, "--").decode()
        return [RevisionStep(known, tip, self.commit(tip).at, False, tuple(parse_raw(raw)))]

    def ask(self, arguments: Sequence[str]) -> bytes:
        """What git prints for a command line that only reads (`inquiry`); Refused for any other."""
        return self._git(*check_git_command(arguments))

    @property
    def needs_packing(self) -> bool:
        return needs_packing(self._directory / "objects")

    def pack(self) -> None:
        """Loose objects into one pack. Only under the writer lock; readers are not disturbed."""
        pack(self._directory)

    def _beside(
        self, changes: Mapping[WorkspacePath, After], author: Author, parents: Sequence[Commit]
    ) -> Commit:
        """One that others are made on top of: they read what it holds, so it is written first."""
        batch = self._objects.batch()
        made = self._add(batch, changes, author, parents)
        batch.sync()
        return made

    def _merge(
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

    def _differing(
        self, older: ObjectId | None, newer: ObjectId | None, prefix: str
    ) -> Iterator[tuple[WorkspacePath, tuple[ObjectId | None, ObjectId | None]]]:
        if older == newer:
            return
        before = self._objects.entries(older) if older else {}
        after = self._objects.entries(newer) if newer else {}
        for name in {**before, **after}:
            pair = (before.get(name), after.get(name))
            files = [one.id if one and one.mode != TREE_MODE else None for one in pair]
            trees = [one.id if one and one.mode == TREE_MODE else None for one in pair]
            if files[0] != files[1]:
                yield WorkspacePath(prefix + name), (files[0], files[1])
            if trees[0] != trees[1]:
                yield from self._differing(trees[0], trees[1], f"{prefix}{name}/")

    def _add(
        self,
        batch: ObjectBatch,
        changes: Mapping[WorkspacePath, After],
        author: Author,
        parents: Sequence[Commit],
    ) -> Commit:
        """A revision with the first parent's files and these changes; nothing points at it yet."""
        first = parents[0] if parents else None
        at = next_stamp(self._clock.now(), *(parent.at for parent in parents))
        told = [
            FileChange(path, self._before(first.id if first else None, path), self._bytes(after))
            for path, after in sorted(changes.items())
        ]
        tree = replace_files(changes, first.tree if first else None, self._objects, batch)
        data = commit_bytes(tree, parents, author, at, message(told, author, at))
        return parse_commit(RevisionId(batch.commit(data)), data)

    def _read_commit(self, revision: RevisionId) -> Commit:
        return parse_commit(revision, self._objects.read(revision))

    def _known(self, revision: RevisionId | None) -> Commit | None:
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
        """Return the names in a directory by what they have in common with those of another case."""
        found: dict[str, list[str]] = {}
        for name in self._directory_at(revision, directory):
            found.setdefault(folded(name), []).append(name)
        return found

    def _before(self, tip: RevisionId | None, path: WorkspacePath) -> bytes | None:
        found = self.find(tip, path)
        return self.read(found) if found else None

    def _bytes(self, after: After) -> bytes | None:
        return self.read(after) if isinstance(after, str) else after

    def _read_tree(self, revision: RevisionId) -> dict[WorkspacePath, ObjectId]:
        return dict(sorted(self._files(self.commit(revision).tree, "")))

    def _files(self, tree: ObjectId, prefix: str) -> list[tuple[WorkspacePath, ObjectId]]:
        found: list[tuple[WorkspacePath, ObjectId]] = []
        for name, entry in self._objects.entries(tree).items():
            if entry.mode == TREE_MODE:
                found += self._files(entry.id, f"{prefix}{name}/")
            else:
                found.append((WorkspacePath(prefix + name), entry.id))
        return found

    def _git(self, *arguments: str) -> bytes:
        return run_git(f"--git-dir={self._directory}", *arguments)
