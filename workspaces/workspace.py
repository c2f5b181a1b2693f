"""A workspace: one tree of files, its history, and the only way to change the two together.

A change goes: take the writer lock → what is found changed by hand becomes a revision of its own, by
the person → judge the condition → declare the intent → write the file → make the revision. So every
line has the author who wrote it, a condition is judged against what is really there, and a crash
between any two of these steps leaves an intent from which the next writer finishes the story.

Where several machines share the files, a condition is not judged here alone: the `Remote` decides, by its
own conditional write, before the file is written and anyone is answered. What comes from other machines
comes in by `bring`, under the same lock and as a revision of its own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from workspaces.blobs import Blob, Stat
from workspaces.clock import Clock
from workspaces.configuration import WorkspaceRecord
from workspaces.conflict import is_conflict
from workspaces.durable import HERE, Durable
from workspaces.errors import (
    AlreadyExists,
    Conflict,
    Failure,
    NotFound,
    OverLimit,
    Refused,
    Unavailable,
)
from workspaces.expect import ABSENT, ANY, Wildcard, is_met
from workspaces.file import File, as_bytes
from workspaces.history.graft import After
from workspaces.history.history import HEAD, PUT_BACK, History, View
from workspaces.history.objects import ObjectId, blob_id
from workspaces.history.origins import Origins
from workspaces.history.quarantine import Quarantine
from workspaces.history.undo import Files, touched, undone
from workspaces.ids import Namespace, Version, version_of
from workspaces.live import Displaced, Label, LiveTree
from workspaces.paths import WorkspacePath, folded
from workspaces.problem import Problem
from workspaces.revision import SYNC, Author, Revision, RevisionId
from workspaces.room import Room
from workspaces.seam import TRAILER as SEAMS
from workspaces.seam import trailer_of
from workspaces.search.recall import Recall
from workspaces.swap import Swap, Swaps
from workspaces.tree import Known, Tree, TreeScan
from workspaces.writer import WAIT_S, Held, Intent, WriterLock

VERSIONS_SEARCHED_MAX = 200
"""A version that a conversation still knows after so many later ones is better read anew."""

PATHS_LOOKED_UP_MAX = 50
"""More than this are found faster by reading the whole tree of a revision."""

RACES_MAX = 20
"""How often an unconditional write is begun anew when someone past the lock was faster."""

Plan = Callable[[Files], Files]
"""What files become, None for gone, from what they are."""


@dataclass(frozen=True, slots=True)
class Written:
    path: WorkspacePath
    version: Version | None
    """None after a delete."""
    revision: RevisionId | None
    """None when the bytes were there already: nothing changed, so there is nothing to tell."""
    durable: Durable = HERE


@dataclass(frozen=True, slots=True)
class Arrival:
    """What another machine made of a file."""

    path: WorkspacePath
    data: bytes | None
    """None: it goes."""
    expect: Version | None
    """What this was planned on; a file that is something else by now is left alone."""
    beside: bytes | None = None
    """What they had, where `data` is a merge of it with what is here."""
    seam: str = ""
    """What there is to be said of the merge."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """The history that others have made, as far as it is not here: to be followed once the files here are
    at least what it says."""

    tip: RevisionId
    quarantine: Quarantine
    aside: Collection[str] = ()
    """Files that have no place here, or are held: as theirs, whatever is here."""


@dataclass(slots=True)
class Brought:
    """What did not come in: everything else is there now."""

    left: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    """Somebody changed it since it was planned on."""
    refused: list[Problem] = field(default_factory=list[Problem])
    """There is no place for it here."""
    there: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """It was there already."""
    unfollowed: Failure | None = None
    """Why their history was not followed, where something is wrong with it."""


class Remote(Protocol):
    """The one truth for conditions, where several machines share the files."""

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        """Make it so there, if there is what was last agreed on. Conflict, Unavailable. What is returned
        is called when the file here has followed."""
        ...

    def refresh(self, path: WorkspacePath) -> None:
        """Bring what is there."""
        ...

    def problems(self) -> list[Problem]:
        """What is there and could not be brought here, as far as it was looked at."""
        ...


@dataclass(slots=True)
class Command:
    """Something that had the whole tree to itself."""

    revision: RevisionId | None = None
    """Of what it changed, once it has ended; None when it changed nothing."""
    before: Tree = field(default_factory=Tree)
    after: Tree = field(default_factory=Tree)

    @property
    def problems(self) -> list[Problem]:
        """What it left that cannot be kept."""
        return [problem for problem in self.after.problems if problem not in self.before.problems]


@dataclass(frozen=True, slots=True)
class _AtRest:
    """A tree that is the same as a revision."""

    tree: Tree
    tip: RevisionId | None


class Workspace:
    """Threads and processes may share one; each holds its own object."""

    def __init__(
        self,
        record: WorkspaceRecord,
        namespace: Namespace,
        *,
        root: Path,
        blobs: LiveTree,
        history: History,
        lock: WriterLock,
        person: Author,
        clock: Clock,
        origins: Origins,
        recall: Recall,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        """`person`: who is taken to have written what nobody else has declared."""
        self.record = record
        self.namespace = namespace
        self.root = root
        """Where people and their editors find the files. Nothing here opens anything by it."""
        self.history = history
        """For reading. Whoever writes comes through this class."""
        self.origins = origins
        self.recall = recall
        self._blobs = blobs
        self._history = history
        self._lock = lock
        self._person = person
        self._scan = TreeScan(
            blobs, record.config.quota, clock, lambda: history.tree(history.tip())
        )
        self._found = Tree()
        """By the last scan under the writer lock."""
        self._clean: _AtRest | None = None
        """None: when the whole tree was last compared, something in it was in no revision."""
        self._at_rest: _AtRest | None = None
        """What had come of the tree when it was last settled, if it was mended and clean."""
        self._room = Room(record.config.quota, clock, self._scan.scan)
        self._swaps = Swaps(blobs, history.read, nonce, self._path_of)
        self.revised: Callable[[], None] = lambda: None
        """Called when a revision was made here, once the lock is free."""
        self.remote: Remote | None = None
        """None: the files are this machine's alone, and the writer lock decides."""

    def read(self, path: str, *, view: View = HEAD) -> File:
        """One file, as it is now or as a revision has it."""
        path = WorkspacePath(path)
        if view == HEAD:
            return File(path, self._blobs.read(path).data)
        found = self._history.find(self._history.resolve(view), path)
        if found is None:
            raise NotFound("file", path)
        return File(path, self._history.read(found))

    def find_version(self, path: str, version: Version) -> bytes | None:
        """The bytes that a version of a file had, as far back as its history is searched."""
        path = WorkspacePath(path)
        for revision in self._history.log(path=path, limit=VERSIONS_SEARCHED_MAX):
            found = self._history.find(revision.id, path)
            data = self._history.read(found) if found else None
            if data is not None and version_of(data) == version:
                return data
        return None

    def files(self, *, view: View = HEAD) -> list[WorkspacePath]:
        """What is to be read: second files, which wait for a person, are problems and not among them."""
        if view == HEAD:
            found = list(self.scan().files)
        else:
            found = list(self._history.tree(self._history.resolve(view)))
        return [path for path in found if not is_conflict(path)]

    def find(self, directory: str, matches: Callable[[str], bool]) -> list[Stat]:
        """The files below a directory ("" is the root) whose path matches, as the store lists them, none
        of them read; without second files, like `files`."""
        found = self._blobs.find(directory, matches)
        return [stat for stat in found if not is_conflict(stat.name)]

    def problems(self, tree: Tree | None = None) -> list[Problem]:
        """Whatever cannot be kept, here or from elsewhere: one list for every face. `tree`: the scan to
        go by, where one was just made."""
        here = (tree or self.scan()).problems
        if not self._history.is_there:
            here = (*here, Problem(".history", "history", "its directory is missing"))
        return [*here, *(self.remote.problems() if self.remote is not None else ())]

    def scan(self) -> Tree:
        """Every file that is there now, with its version, and what is wrong."""
        tree = self._scan.scan()
        self._room.counted(tree)
        return tree

    def tip(self) -> RevisionId | None:
        return self._history.tip()

    def log(self, path: str | None = None, *, limit: int = 50) -> list[Revision]:
        return self._history.log(path=WorkspacePath(path) if path else None, limit=limit)

    def write(
        self, path: str, data: bytes | str, *, by: Author, expect: Version | Wildcard = ANY
    ) -> Written:
        """Set a file. `expect` is the version the writer has seen, ABSENT, or ANY."""
        path = WorkspacePath(path)
        data = as_bytes(data) if isinstance(data, str) else data
        self._room.check_file(path, data)
        if self.remote is not None and expect is not ANY:
            return self._write_decided(self.remote, path, data, by, expect)
        with self._writing(by) as held:
            for _ in range(RACES_MAX):
                current = self._settled(path, expect)
                if current is not None and current.data == data:
                    return Written(path, current.version, None)
                self._check_change(path, data, current)
                try:
                    with self._changing(held, by, path, data):
                        self._blobs.write(path, data, expect=current.token if current else ABSENT)
                except Conflict:
                    continue  # an editor came in past the lock: what it wrote is settled first
                revision = self._history.record({path: data}, by)
                held.fulfilled()
                return Written(path, version_of(data), revision)
        raise Unavailable(path, "it changes faster than it can be written")

    def plant(self, files: Mapping[str, bytes], *, by: Author) -> RevisionId | None:
        """Set the first files, as one revision. AlreadyExists when one of them is there already."""
        planted: Files = {WorkspacePath(path): data for path, data in files.items()}

        def plan(now: Files) -> Files:
            for path, data in now.items():
                if data not in {None, planted[path]}:
                    raise AlreadyExists("file", path)
            return planted

        return self.change(list(planted), plan, by=by)

    def delete(self, path: str, *, by: Author, expect: Version | Wildcard = ANY) -> Written:
        """Remove a file; its last version stays in the history. NotFound when there is none."""
        path = WorkspacePath(path)
        if self.remote is not None and expect is not ANY:
            return self._write_decided(self.remote, path, None, by, expect)
        with self._writing(by) as held:
            for _ in range(RACES_MAX):
                current = self._settled(path, expect)
                if current is None:
                    raise NotFound("file", path)
                try:
                    with self._changing(held, by, path, None):
                        self._blobs.delete(path, expect=current.token)
                except Conflict:
                    continue
                revision = self._history.record({path: None}, by)
                held.fulfilled()
                return Written(path, None, revision)
        raise Unavailable(path, "it changes faster than it can be deleted")

    @contextmanager
    def command(self, by: Author) -> Generator[Command]:
        """Hold the tree for something that knows no conditions, such as a shell: what is dirty before
        is the person's, what is dirty after is `by`'s, however it ends. Everyone else waits, this
        process too: inside, nothing is written through a workspace."""
        with self._writing(by) as held:
            self._blobs.mend()
            self._record_dirty(Intent(self._person, None))
            anything = Intent(by, None)
            held.intend(by, None)
            command = Command(before=self._found)
            try:
                yield command
            finally:
                self._blobs.mend()
                command.revision = self._record_dirty(anything)
                command.after = self._found
                held.fulfilled()

    def restore(self, path: str, view: View, *, by: Author) -> Written:
        """A file as it was at a revision, or gone if it was not there: as a new revision."""
        path = WorkspacePath(path)
        revision = self._history.resolve(view)
        found = self._history.find(revision, path)
        by = by.saying("Restored", revision or "")
        if found is None:
            return self.delete(path, by=by)
        return self.write(path, self._history.read(found), by=by)

    def revert(self, view: View, *, by: Author) -> RevisionId | None:
        """Undo what a revision did, and nothing else, as a new revision; None when that is undone
        already. Refused where the same lines were changed again since."""
        revision = self._history.show(view).revision.id
        paths = touched(self._history, revision)

        def plan(now: Files) -> Files:
            return undone(self._history, revision, now)

        return self.change(paths, plan, by=by.saying("Reverted", revision))

    def change(
        self, paths: Sequence[WorkspacePath], plan: Plan, *, by: Author
    ) -> RevisionId | None:
        """Several files as one revision. `plan` is asked what they become, once they are settled."""
        revision: RevisionId | None = None
        with self._writing(by) as held:
            for _ in range(RACES_MAX):
                found = {path: self._settled(path, ANY) for path in paths}
                planned = plan({path: blob.data if blob else None for path, blob in found.items()})
                for path, data in planned.items():
                    self._check_change(path, data, found[path])
                held.intend(by, list(planned))
                done, failure = self._put_all(planned, found)
                if done:
                    revision = self._history.record(done, by)
                held.fulfilled()
                if failure is None:
                    return revision
                if not isinstance(failure, Conflict):
                    raise failure
        raise Unavailable(", ".join(paths), "they change faster than they can be written")

    def settled(self, found: Mapping[WorkspacePath, ObjectId | None]) -> set[WorkspacePath]:
        """The paths that the newest revision has as they were `found` (None: gone), after what a person
        changed there became one. The others have changed again since."""
        recorded = self._recorded(found, self._history.tip())
        dirty = tuple(path for path, state in found.items() if recorded.get(path) != state)
        if dirty:
            with self._writing(self._person):
                self._record_dirty(Intent(self._person, dirty))
                recorded.update(dict.fromkeys(dirty))
                recorded.update(self._recorded(dirty, self._history.tip()))
        return {path for path, state in found.items() if recorded.get(path) == state}

    def staying(self, seen: Mapping[WorkspacePath, ObjectId]) -> set[WorkspacePath]:
        """Of these files those that are still as they were seen. Between two moves of a swap a file is for
        a moment what it may not become; nobody is there while this looks."""
        if not seen:
            return set()
        with self._locked(SYNC, WAIT_S):
            return {path for path, state in seen.items() if self._object_at(path) == state}

    def bring(
        self, arrivals: Sequence[Arrival], *, by: Author, theirs: Theirs | None = None
    ) -> Brought:
        """Take over what other machines made. With their history it is told as they told it; without, as
        one revision by `by`."""
        paths = tuple(arrival.path for arrival in arrivals)
        brought = Brought()
        with self._writing(by) as held:
            alike = frozenset[WorkspacePath]()
            if theirs is not None and self._is_known(theirs.tip):
                theirs = None
            if theirs is not None:
                try:
                    self._history.receive(theirs.quarantine, theirs.tip)
                    alike = self._settled_against(theirs, frozenset(paths))
                except Failure as failure:
                    brought.unfollowed, theirs = failure, None
            self._record_dirty(Intent(self._person, paths))
            swaps = [swap for arrival in arrivals if (swap := self._swap_for(arrival, brought))]
            held.intend(by, paths)
            done, refused = self._swaps.put_all(swaps)
            for path, reason in refused.items():
                brought.refused.append(Problem(path, "unreadable", str(reason)))
            brought.left += [s.path for s in swaps if s.path not in done and s.path not in refused]
            if theirs is not None and not brought.left:
                here = done | brought.there
                told = {a.path: a for a in arrivals if a.path in here}
                self._follow_theirs(theirs, told, alike | refused.keys(), by)
            else:
                told = {
                    a.path: a for a in arrivals if a.path in done or _is_met_halfway(a, brought)
                }
                self._tell(told, by)
            held.fulfilled()
            # What was saved in the middle of it. A file that was not there before has nothing to lose, and
            # is settled like any other when somebody looks at it.
            over = tuple(swap.path for swap in swaps if swap.seen is not None)
            self._record_dirty(Intent(self._person, over))
        return brought

    def displaced(self) -> list[Label]:
        """What swaps have left aside. Under the lock: what somebody is about to swap in lies there too, under
        the label of what will come out."""
        if not self._blobs.labels():
            return []
        with self._locked(self._person, WAIT_S):
            return self._blobs.labels()

    def look_again(self, labels: Sequence[Label]) -> list[WorkspacePath]:
        """Look at what swaps had displaced some time ago; what somebody wrote to it after that comes back,
        as the person's. Returns where it stands now."""
        with self._writing(self._person):
            paths = {path for label in labels if (path := self._swaps.path_of(label))}
            self._record_dirty(Intent(self._person, tuple(paths)))
            found = [path for label in labels if (path := self._swaps.reinstate(label))]
            if found:
                self._record_dirty(Intent(self._person, tuple(found)))
        return found

    def identity(self) -> str | None:
        """Which directory this is; None when it is not where it should be."""
        return self._blobs.identity() if self._blobs.is_at(self.root) else None

    @property
    def stat_cache(self) -> Known:
        return self._scan.known

    @stat_cache.setter
    def stat_cache(self, known: Known) -> None:
        self._scan.known = known

    @property
    def needs_packing(self) -> bool:
        return self._history.needs_packing

    def tidy(self) -> None:
        """Housekeeping of the history: nothing that anyone reads is different afterwards."""
        with self._writing(self._person):
            self._history.pack()

    def pending(self) -> list[WorkspacePath]:
        """What is new, different or gone since the newest revision. While somebody holds the writer
        lock it is theirs; else a person changed it by hand, and it will be settled."""
        changed, gone = self._dirty_paths(self._history.tip())
        return sorted({*changed, *gone})

    def settle(self, *, wait_s: float = WAIT_S) -> RevisionId | None:
        """Make a revision of what a person changed by hand, if anything. Returns the newest one. What
        root put there can be read by the user that runs commands afterwards. Where nothing was touched
        since this was asked before, it is one look at each file, and nobody is waited for."""
        tip = self.tip()
        if self._is_as_settled(tip):
            return tip
        with self._writing(self._person, wait_s):
            if os.geteuid() == 0:
                self._blobs.mend()
            self._record_dirty(Intent(self._person, None))
            self._at_rest = self._clean
            return self.tip()

    def is_settled(self, file: WorkspacePath, directory: str, known: Iterable[str]) -> bool:
        """Whether there is nothing to be settled in a file, nor in a directory as far as a glance tells:
        nothing came or went there, and those files in it that are `known` are the same. It takes a few
        dozen looks where `settle` takes one at each file; what was written in place into any other file
        is left to that."""
        at_rest = self._at_rest
        if at_rest is None or not self._is_here():
            return False
        if self._scan.untouched(directory, known) is not at_rest.tree:
            return False
        return self._object_at(file) == self._history.find(self.tip(), file)

    def _is_as_settled(self, tip: RevisionId | None) -> bool:
        at_rest = self._at_rest
        if at_rest is None or at_rest.tip != tip or not self._is_here():
            return False
        return self.scan() is at_rest.tree

    def _is_here(self) -> bool:
        return self._blobs.is_at(self.root) and self._history.is_there

    def _write_decided(
        self,
        remote: Remote,
        path: WorkspacePath,
        data: bytes | None,
        by: Author,
        expect: Version | Wildcard,
    ) -> Written:
        """The remote decides; then the file here follows, whatever else is saved meanwhile."""
        for _ in range(RACES_MAX):
            with self._writing(by) as held:
                current = self._settled(path, expect)
                if current is None and data is None:
                    raise NotFound("file", path)
                self._check_change(path, data, current)
                try:
                    follow = remote.decide(path, data)
                except Conflict:
                    pass  # another machine was faster: what it wrote is brought here and judged anew
                else:
                    revision, has_followed = self._follow(held, path, data, by, current)
                    if has_followed:
                        follow()
                    version = None if data is None else version_of(data)
                    return Written(path, version, revision, Durable(files=True))
            remote.refresh(path)
        raise Unavailable(path, "it changes faster than it can be written")

    def _follow(
        self,
        held: Held,
        path: WorkspacePath,
        data: bytes | None,
        by: Author,
        current: Blob | None,
    ) -> tuple[RevisionId | None, bool]:
        """It has been decided that the file is `data`: the revision, and whether the file here is that
        now. If not, a person has saved in that moment, and the next sync merges the two."""
        seen = current.data if current else None
        if seen == data:
            return None, True
        held.intend(by, [path])
        has_followed = self._swaps.put(path, data, seen)
        revision = self._history.record({path: data}, by)
        held.fulfilled()
        self._record_dirty(Intent(self._person, (path,)))
        return revision, has_followed

    def _settled_against(
        self, theirs: Theirs, arriving: Collection[WorkspacePath]
    ) -> frozenset[WorkspacePath]:
        """What a person changed by hand where their history says something else becomes a revision; but
        what is the same as theirs, or counts as theirs, is returned."""
        differing = self._history.differences(self._history.tip(), theirs.tip)
        alike: set[WorkspacePath] = set()
        for path, (_, there) in differing.items():
            if path in theirs.aside or (path not in arriving and self._object_at(path) == there):
                alike.add(path)
        dirty = [path for path in differing if path not in alike and path not in arriving]
        self._record_dirty(Intent(self._person, tuple(dirty)))
        return frozenset(alike)

    def _follow_theirs(
        self,
        theirs: Theirs,
        told: Mapping[WorkspacePath, Arrival],
        alike: Collection[str],
        by: Author,
    ) -> None:
        """Our line of history and theirs become one, in which the files are as they are here now."""
        tip = self._history.tip()
        differing: dict[WorkspacePath, After] = {
            path: ours
            for path, (_, ours) in self._history.differences(theirs.tip, tip).items()
            if path not in alike
        }
        beside: dict[WorkspacePath, bytes] = {}
        recorded = self._recorded(told, theirs.tip)
        for path, arrival in told.items():
            there = recorded.get(path)
            differing.pop(path, None)
            if (None if arrival.data is None else blob_id(arrival.data)) != there:
                differing[path] = arrival.data
            if arrival.beside is not None and blob_id(arrival.beside) != there:
                beside[path] = arrival.beside
        self._history.follow(theirs.tip, differing, by, beside=beside)

    def _tell(self, told: Mapping[WorkspacePath, Arrival], by: Author) -> None:
        """What came in, as a revision of its own, where it says anything new."""
        recorded = self._recorded(told, self._history.tip())
        beside = {path: one.beside for path, one in told.items() if one.beside is not None}
        changes = {
            path: one.data
            for path, one in told.items()
            if path in beside
            or recorded.get(path) != (None if one.data is None else blob_id(one.data))
        }
        if changes:
            seams = {path: told[path].seam for path in changes if told[path].seam}
            by = by.saying(SEAMS, trailer_of(seams)) if seams else by
            self._history.record(changes, by, beside=beside)

    def _is_known(self, revision: RevisionId) -> bool:
        return self._history.has(revision) and self._history.descends(self._history.tip(), revision)

    def _object_at(self, path: WorkspacePath) -> ObjectId | None:
        try:
            blob = self._blob(path)
        except Failure:
            return None
        return blob_id(blob.data) if blob else None

    def _swap_for(self, arrival: Arrival, brought: Brought) -> Swap | None:
        """None when there is nothing to swap: it is there already, or not what this was planned on."""
        path = arrival.path
        try:
            current = self._blob(path)
        except (Refused, OverLimit) as error:
            brought.refused.append(Problem(path, "unreadable", str(error)))
            return None
        data = current.data if current else None
        if data == arrival.data:
            brought.there.add(path)
            return None
        if (current.version if current else None) != arrival.expect:
            brought.left.append(path)
            return None
        return Swap(path, arrival.data, data)

    def _recorded(
        self, paths: Collection[WorkspacePath], revision: RevisionId | None
    ) -> dict[WorkspacePath, ObjectId | None]:
        """What a revision has of these, and maybe of others."""
        if len(paths) > PATHS_LOOKED_UP_MAX:
            return {**self._history.tree(revision)}
        return {path: self._history.find(revision, path) for path in paths}

    def _path_of(self, told: Displaced) -> WorkspacePath | None:
        tip = self._history.tip()
        return next((path for path in self._history.tree(tip) if told.is_of(path)), None)

    @contextmanager
    def _writing(self, by: Author, wait_s: float = WAIT_S) -> Generator[Held]:
        before = self.tip()
        try:
            with self._locked(by, wait_s) as held:
                yield held
        finally:
            if by.source != "sync" and self.tip() != before:
                self.revised()

    @contextmanager
    def _locked(self, by: Author, wait_s: float) -> Generator[Held]:
        with self._lock.hold(by.name, wait_s=wait_s) as held:
            if not self._blobs.is_at(self.root):
                raise NotFound("workspace", self.record.name, remedy="it has been deleted")
            if not self._history.is_there:
                raise self._lost_history()
            if held.left_behind is not None:
                if (
                    held.left_behind.paths is None
                ):  # a command died here, and may have left anything
                    self._blobs.mend()
                self._record_dirty(held.left_behind)
                held.fulfilled()
            yield held

    def _lost_history(self) -> Unavailable:
        """Never begun anew in silence: what was there may lie in a copy, or in S3."""
        name = self.record.name
        remedy = f"`harness sync {name}` fetches it again" if self.remote is not None else PUT_BACK
        reason = f"the directory {self.namespace}.git is missing"
        return Unavailable(f"history of {name}", reason, remedy=remedy)

    @contextmanager
    def _changing(
        self, held: Held, by: Author, path: WorkspacePath, after: bytes | None
    ) -> Generator[None]:
        """Declare the change of a file, and take it back when it failed: what someone else writes there
        later is theirs. A change that stands although it failed (the disk did not confirm it) stays
        declared, and the next writer finishes its story."""
        held.intend(by, [path])
        try:
            yield
        except Failure as failure:
            if isinstance(failure, Conflict) or not self._holds(path, after):
                held.fulfilled()
            raise

    def _holds(self, path: WorkspacePath, data: bytes | None) -> bool:
        try:
            blob = self._blob(path)
        except Failure:
            return False
        return (blob.data if blob else None) == data

    def _settled(self, path: WorkspacePath, expect: Version | Wildcard) -> Blob | None:
        """The file, after a person's uncommitted bytes became a revision, if it is what `expect`
        says; else Conflict."""
        self._record_dirty(Intent(self._person, (path,)))
        current = self._blob(path)
        version = current.version if current else None
        if not is_met(expect, version):
            if expect is ABSENT:
                raise AlreadyExists("file", path)
            raise Conflict("file", path, expected=expect, actual=version)
        return current

    def _record_dirty(self, intent: Intent) -> RevisionId | None:
        """A revision by `intent.author` of those of its paths that differ from the newest one; None
        when none does."""
        tip = self._history.tip()
        changed, gone = self._dirty_paths(tip) if intent.paths is None else (intent.paths, ())
        recorded = self._recorded((*changed, *gone), tip)
        changes: dict[WorkspacePath, bytes | None] = {}
        for path in (*changed, *gone):
            try:
                blob = self._blob(path)
            except Refused:  # a problem, which a scan lists
                if path not in gone:
                    continue
                blob = None  # what is refused has the place of a directory on its way
            except Failure:
                continue
            if (blob_id(blob.data) if blob else None) != recorded.get(path):
                changes[path] = blob.data if blob else None
        if intent.paths is not None and None in changes.values():
            changes = self._without_what_is_elsewhere(changes)
        return self._history.record(changes, intent.author) if changes else None

    def _without_what_is_elsewhere(
        self, changes: Mapping[WorkspacePath, bytes | None]
    ) -> dict[WorkspacePath, bytes | None]:
        """What is there and could not be brought here has not been deleted."""
        held = {problem.path for problem in self.remote.problems()} if self.remote else set[str]()
        return {
            path: data for path, data in changes.items() if data is not None or path not in held
        }

    def _dirty_paths(
        self, tip: RevisionId | None
    ) -> tuple[list[WorkspacePath], frozenset[WorkspacePath]]:
        """What is new or different in the tree, and what has gone from it."""
        recorded = self._history.tree(tip)
        found = self._found = self.scan()
        changed = [
            path for path, state in found.files.items() if recorded.get(path) != state.object_id
        ]
        gone = {path for path in recorded if path not in found.files}
        self._clean = None if changed or gone else _AtRest(found, tip)
        if gone:  # but for what is there, here or elsewhere, though it cannot be kept
            gone -= {problem.path for problem in self.problems(found)}
        return changed, frozenset(gone)

    def _put_all(
        self, planned: Files, found: Mapping[WorkspacePath, Blob | None]
    ) -> tuple[dict[WorkspacePath, bytes | None], Failure | None]:
        """What was put, and what ended it early: Conflict when someone came in past the lock."""
        done: dict[WorkspacePath, bytes | None] = {}
        for path, data in planned.items():
            seen = found[path]
            expect = seen.token if seen else ABSENT
            try:
                if data is None:
                    self._blobs.delete(path, expect=expect)
                else:
                    self._blobs.write(path, data, expect=expect)
            except Failure as failure:
                return done, failure
            done[path] = data
        return done, None

    def _check_change(self, path: WorkspacePath, data: bytes | None, seen: Blob | None) -> None:
        if data is not None:
            self._room.check_file(path, data)
            self._room.take(data, seen)
            if seen is None:
                self._refuse_twin(path)

    def _blob(self, path: WorkspacePath) -> Blob | None:
        try:
            return self._blobs.read(path)
        except NotFound:
            return None

    def _refuse_twin(self, path: WorkspacePath) -> None:
        """A name that differs from an existing one only in case is one file on half of all disks."""
        tip = self._history.tip()
        parts = path.split("/")
        for depth, part in enumerate(parts):
            directory = "/".join(parts[:depth])
            for name in self._history.names(tip, directory):
                if name != part and folded(name) == folded(part):
                    raise AlreadyExists("file", f"{directory}/{name}" if directory else name)


def _is_met_halfway(arrival: Arrival, brought: Brought) -> bool:
    """What is here holds all that is there: their version is still told, beside it."""
    return arrival.path in brought.there and arrival.beside is not None
