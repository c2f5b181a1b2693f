"""A workspace: one tree of files, its history, and the only way to change the two together.

A change goes: take the writer lock → what is found changed by hand becomes a revision of its own, by
the person → judge the condition → declare the intent → write the file → make the revision. So every
line has the author who wrote it, a condition is judged against what is really there, and a crash
between any two of these steps leaves an intent from which the next writer finishes the story.

Where several machines share the files, a condition is not judged here alone: the `Remote` decides, by its
own conditional write, before the file is written and anyone is answered. What a person saves in that moment
is merged with it at once, or stands beside it. What comes from other machines comes in by `bring`, under
the same lock and as a revision of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY, Wildcard
from workspaces.coordination.writer_lock import WAIT_S, HeldLock, WriterLock
from workspaces.durability import HERE, Durable
from workspaces.errors import AlreadyExists, Conflict, Failure, NotFound, Unavailable
from workspaces.file import File, as_bytes
from workspaces.history.git.objects import ObjectId
from workspaces.history.history import HEAD, History, View
from workspaces.history.line_origins import LineOrigins
from workspaces.history.revert import Files, touched_paths, undo_changes
from workspaces.ids import Namespace, Version, version_of
from workspaces.localfs.permissions import DiskUsage
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import SYNC, Author, Revision, RevisionId
from workspaces.search.recall import Recall
from workspaces.storage.blobs import Blob, Stat
from workspaces.tree.conflict_copy import is_conflict
from workspaces.tree.merge import MergeResult
from workspaces.tree.merge_marks import TRAILER as SEAMS
from workspaces.tree.merge_marks import told_of, trailer_of
from workspaces.tree.port import Displaced, Label, LiveTree, Staged
from workspaces.tree.safe_replace import Replacement, SafeReplace
from workspaces.tree.scan import Known, OnFileRead, Tree
from workspaces.workspace.incoming_changes import (
    ApplyResult,
    IncomingChange,
    IncomingChanges,
    Theirs,
)
from workspaces.workspace.manual_edits import ManualEdits
from workspaces.workspace.remote_port import Remote
from workspaces.workspace_record import WorkspaceRecord

VERSIONS_SEARCHED_MAX = 200
"""A version that a conversation still knows after so many later ones is better read anew."""

RACES_MAX = 20
"""How often an unconditional write is begun anew when someone past the lock was faster."""

EditFiles = Callable[[Files], Files]
"""What files become, None for gone, from what they are."""


@dataclass(frozen=True, slots=True)
class Written:
    path: WorkspacePath
    version: Version | None
    """None after a delete."""
    revision: RevisionId | None
    """None when the bytes were there already: nothing changed, so there is nothing to tell."""
    durable: Durable = HERE
    created: bool = False
    """No file was there before."""


@dataclass(slots=True)
class Command:
    """Something that had the whole tree to itself."""

    revision: RevisionId | None = None
    """Of what it changed, once it has ended; None when it changed nothing."""
    taken: DiskUsage = field(default_factory=DiskUsage)
    """By the whole tree when it began, with what is not kept."""
    before: Tree = field(default_factory=Tree)
    after: Tree = field(default_factory=Tree)

    @property
    def problems(self) -> list[Problem]:
        """What it left that cannot be kept."""
        before = set(self.before.problems)
        return [problem for problem in self.after.problems if problem not in before]


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
        origins: LineOrigins,
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
        self._person = person
        settlement = self._settlement = ManualEdits(
            record,
            namespace,
            root=root,
            blobs=blobs,
            history=history,
            lock=lock,
            person=person,
            clock=clock,
        )
        self._room = self._settlement.room
        # none of these refers to this object: so its descriptors are closed as soon as nobody has it any more
        self._swaps = SafeReplace(
            blobs,
            history.read,
            history.keep,
            nonce,
            partial(_path_of, history),
            lambda path: settlement.check_precondition(path, ANY),
            partial(_tell, settlement, history, person),
        )
        self._arrivals = IncomingChanges(self._settlement, history, self._swaps)

    @property
    def remote(self) -> Remote | None:
        """None: the files are this machine's alone, and the writer lock decides."""
        return self._settlement.remote

    def share(self, remote: Remote, revised: Callable[[], None] = lambda: None) -> None:
        """With other machines, from now on. `revised` is called when a revision was made here, once the
        lock is free."""
        self._settlement.remote, self._settlement.revised = remote, revised

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
        return self._settlement.problems(tree)

    def scan(self, told: OnFileRead = lambda _name, _data: None) -> Tree:
        """Every file that is there now, with its version, and what is wrong."""
        return self._settlement.scan(told)

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
        with self._settlement.hold(by) as held:
            for _ in range(RACES_MAX):
                current = self._settlement.check_precondition(path, expect)
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
                return Written(path, version_of(data), revision, created=current is None)
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
        with self._settlement.hold(by) as held:
            for _ in range(RACES_MAX):
                current = self._settlement.check_precondition(path, expect)
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
        with self._settlement.hold(by) as held:
            taken = self._blobs.mend()
            self._settlement.record_whole()
            held.intend(by, None)
            command = Command(taken=taken, before=self._settlement.found)
            try:
                yield command
            finally:
                self._blobs.mend()
                command.revision = self._settlement.record_whole(by)
                command.after = self._settlement.found
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
        paths = touched_paths(self._history, revision)

        def plan(now: Files) -> Files:
            return undo_changes(self._history, revision, now)

        return self.change(paths, plan, by=by.saying("Reverted", revision))

    def change(
        self, paths: Sequence[WorkspacePath], plan: EditFiles, *, by: Author
    ) -> RevisionId | None:
        """Several files as one revision. `plan` is asked what they become, once they are settled."""
        revision: RevisionId | None = None
        with self._settlement.hold(by) as held:
            for _ in range(RACES_MAX):
                found = {path: self._settlement.check_precondition(path, ANY) for path in paths}
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

    def committed(
        self, found: Mapping[WorkspacePath, ObjectId | None]
    ) -> tuple[set[WorkspacePath], RevisionId | None]:
        """The paths that a revision has as they were `found` (None: gone), and that revision: the newest,
        after what a person changed there became one. The others have changed again since."""
        return self._settlement.committed(found)

    def bring(
        self, arrivals: Sequence[IncomingChange], *, by: Author, theirs: Theirs | None = None
    ) -> ApplyResult:
        """Take over what other machines made. With their history it is told as they told it; without, as
        one revision by `by`."""
        return self._arrivals.apply(arrivals, by, theirs)

    @contextmanager
    def staging(self) -> Generator[Callable[[bytes], Staged]]:
        """For what is on its way in: it is put aside as it comes. What was not brought in the block goes, and
        what somebody who died has left. One at a time: whoever stages holds off all others."""
        self._blobs.unstage()
        try:
            yield self._blobs.stage
        finally:
            self._blobs.unstage()

    def staying(self, seen: Mapping[WorkspacePath, ObjectId | None]) -> set[WorkspacePath]:
        """Of these files those that are still as they were seen (None: gone). Between two moves of a swap a
        file is for a moment what it may not become; nobody is there while this looks."""
        if not seen:
            return set()
        with self._settlement.hold(SYNC):
            return {
                path for path, state in seen.items() if self._settlement.object_at(path) == state
            }

    def wait_for_writers(self) -> None:
        """Until everybody who is about to change the files has done so, and has told what came of it."""
        with self._settlement.hold(SYNC):
            pass

    def displaced(self) -> list[Label]:
        """What swaps have left aside. Under the lock: what somebody is about to swap in lies there too, under
        the label of what will come out."""
        if not self._blobs.labels():
            return []
        with self._settlement.hold(self._person):
            return self._blobs.labels()

    def look_again(self, labels: Sequence[Label]) -> list[WorkspacePath]:
        """Look at what swaps had displaced some time ago; what somebody wrote to it after that comes back,
        as the person's. Returns where it stands now."""
        with self._settlement.hold(self._person):
            paths = {path for label in labels if (path := self._swaps.path_of(label))}
            self._settlement.record(paths)
            found = [path for label in labels if (path := self._swaps.check_late_writes(label))]
            if found:
                self._settlement.record(found)
        return found

    def identity(self) -> str | None:
        """Which directory this is; None when it is not where it should be."""
        return self._blobs.identity() if self._blobs.is_at(self.root) else None

    @property
    def stat_cache(self) -> Known:
        return self._settlement.stat_cache

    @stat_cache.setter
    def stat_cache(self, known: Known) -> None:
        self._settlement.stat_cache = known

    @property
    def needs_packing(self) -> bool:
        return self._history.needs_packing

    def tidy(self) -> None:
        """Housekeeping of the history: nothing that anyone reads is different afterwards."""
        with self._settlement.hold(self._person):
            self._history.pack()

    def pending(self) -> list[WorkspacePath]:
        """What is new, different or gone since the newest revision. While somebody holds the writer
        lock it is theirs; else a person changed it by hand, and it will be settled."""
        return self._settlement.pending()

    def commit_edits(self, *, wait_s: float = WAIT_S) -> RevisionId | None:
        """Make a revision of what a person changed by hand, if anything. Returns the newest one. Where
        nothing was touched since this was asked before, it is one look at each file, and nobody is waited
        for."""
        return self._settlement.commit_edits(wait_s=wait_s)

    def is_clean(self, file: WorkspacePath, directory: str, known: Iterable[str]) -> bool:
        """Whether there is nothing to be settled in a file, nor in a directory as far as a glance at those
        of its files that are `known` tells."""
        return self._settlement.is_clean(file, directory, known)

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
            with self._settlement.hold(by) as held:
                current = self._settlement.check_precondition(path, expect)
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
                    is_new = current is None and data is not None
                    return Written(path, version, revision, Durable(files=True), is_new)
            remote.refresh(path)
        raise Unavailable(path, "it changes faster than it can be written")

    def _follow(
        self,
        held: HeldLock,
        path: WorkspacePath,
        data: bytes | None,
        by: Author,
        current: Blob | None,
    ) -> tuple[RevisionId | None, bool]:
        """It has been decided that the file is `data`: the revision, and whether the file here holds that
        now. What a person has saved in that moment is given back; where the file has gone meanwhile the next
        sync decides."""
        seen = current.data if current else None
        if seen == data:
            return None, True
        held.intend(by, [path])
        swapped = self._swaps.put([Replacement(path, data, seen)])
        if path in swapped.refused:
            raise swapped.refused[path]
        revision = self._history.record({path: data}, by)
        held.fulfilled()
        self._swaps.restore(swapped.overtaken.values())
        self._settlement.record((path,))
        return revision, path in swapped.done

    @contextmanager
    def _changing(
        self, held: HeldLock, by: Author, path: WorkspacePath, after: bytes | None
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
            blob = self._settlement.blob(path)
        except Failure:
            return False
        return (blob.data if blob else None) == data

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

    def _refuse_twin(self, path: WorkspacePath) -> None:
        """A name that differs from an existing one only in case is one file on half of all disks."""
        tip = self._history.tip()
        parts = path.split("/")
        for depth, part in enumerate(parts):
            directory = "/".join(parts[:depth])
            for name in self._history.named_alike(tip, directory, part):
                if name != part:
                    raise AlreadyExists("file", f"{directory}/{name}" if directory else name)


def _tell(
    settlement: ManualEdits,
    history: History,
    person: Author,
    path: WorkspacePath,
    merged: MergeResult,
    out: bytes,
) -> None:
    """Put what somebody wrote to what a swap displaced into the file again."""
    if merged.is_clean:
        settlement.record([path])
        return
    seam = trailer_of({path: told_of(merged.overlaps, merged.clashes)})
    history.record({path: merged.data}, person.saying(SEAMS, seam), beside={path: out})


def _path_of(history: History, told: Displaced) -> WorkspacePath | None:
    """Return the path of what is there, or has lately been."""
    here = history.tree(history.tip())
    found = next((path for path in here if told.is_of(path)), None)
    if found is not None:
        return found
    lately = history.log(limit=VERSIONS_SEARCHED_MAX)
    known = (WorkspacePath(path) for one in lately for path in one.paths)
    return next((path for path in known if told.is_of(path)), None)
