"""Change a workspace: one tree of files and its history, and the only way to change the two together.

A change takes these steps: take the writer lock → commit manual edits as a revision by the person → check
the condition → declare the intent → write the file → make the revision. So every line has the author who
wrote it, and a condition is checked against the real content. A crash between any two steps leaves an
intent, and the next writer completes the record.

If several machines share the files, this machine does not decide a condition alone. The `Remote` decides,
by its own conditional write, before the file is written and the caller gets an answer. What a person saves
at that moment is merged at once, or kept as a second file. Changes of other machines come in by `incoming`,
under the same lock and as a revision of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from workspaces.accounts.stored_workspace import StoredWorkspace
from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY, Wildcard, is_met
from workspaces.coordination.lazily import lazily
from workspaces.coordination.writer_lock import WAIT_S, WriterLock
from workspaces.errors import AlreadyExists, Conflict, Failure, NotFound, Undecided
from workspaces.file import File, as_bytes
from workspaces.history.file_origins import FileOrigins
from workspaces.history.git.objects import ObjectId
from workspaces.history.history import HEAD, History, View
from workspaces.history.line_origins import LineOrigins
from workspaces.history.source import ADOPTED
from workspaces.ids import Namespace, Version, WorkspaceId, version_of
from workspaces.localfs.permissions import DiskUsage
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import SYNC, Author, Revision, RevisionId
from workspaces.storage.blobs import Blob, Stat
from workspaces.storage.contention import attempts, contended
from workspaces.tree.conflict_copy import is_conflict
from workspaces.tree.merge import MergeResult
from workspaces.tree.merge_marks import TRAILER as MERGED
from workspaces.tree.merge_marks import describe_merge, trailer_of
from workspaces.tree.port import Displaced, Label, LiveTree, Staged
from workspaces.tree.safe_replace import SafeReplace
from workspaces.tree.scan import Tree
from workspaces.workspace.decided_files import DecidedFiles, EditFiles, FilesChange, Written
from workspaces.workspace.incoming_changes import IncomingChanges
from workspaces.workspace.local_change import LocalChange
from workspaces.workspace.manual_edits import ManualEdits
from workspaces.workspace.protection import Protection, PutBack, told
from workspaces.workspace.remote_port import Remote

if TYPE_CHECKING:
    from workspaces.history.revert import Files
    from workspaces.search.recall import Recall
    from workspaces.workspace.rewriting import Rewriting
    from workspaces.workspace_record import WorkspaceRecord

AnyRecord: TypeAlias = "WorkspaceRecord | StoredWorkspace"
"""The record of a workspace, validated or as it is stored."""

VERSIONS_SEARCHED_MAX = 200
"""Most revisions searched for a version. A version that a conversation still knows after so many later ones
is better read anew."""


@dataclass(slots=True)
class Command:
    """A command that had the whole tree to itself."""

    revision: RevisionId | None = None
    """The revision of what the command changed, once it has ended. None if it changed nothing."""
    taken: DiskUsage = field(default_factory=DiskUsage)
    """Disk usage of the whole tree when the command began, including files that are not kept."""
    before: Tree = field(default_factory=Tree)
    after: Tree = field(default_factory=Tree)
    put_back: Sequence[PutBack] = ()
    """What of its changes was put back, because a model may not change it."""

    @property
    def problems(self) -> list[Problem]:
        """Return the problems that the command left: files that cannot be kept."""
        before = set(self.before.problems)
        return [problem for problem in self.after.problems if problem not in before]


@dataclass(frozen=True, slots=True)
class _Undo:
    """The undo of one revision: its files, and their content after it."""

    revision: RevisionId
    paths: Sequence[WorkspacePath]
    plan: EditFiles


class Workspace:
    """A workspace's files and history. Several threads and processes may use one workspace, each with its own
    object."""

    def __init__(
        self,
        record: AnyRecord,
        namespace: Namespace,
        *,
        root: Path,
        blobs: LiveTree,
        history: History,
        lock: WriterLock,
        person: Author,
        clock: Clock,
        origins: LineOrigins,
        file_origins: FileOrigins,
        recall: Callable[[], Recall],
        protection: Protection | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_hex(4),
        author: Author | None = None,
    ) -> None:
        """`person` is the author of every change that no lock holder declared. `author` is the author of the
        writes that name none; by default the person. `recall` opens the search, when somebody searches."""
        self._given = record
        self.id: WorkspaceId = record.id
        self.name = record.name
        self.namespace = namespace
        self.root = root
        """The directory where people and their editors find the files. This class opens nothing by this
        path."""
        self.history = history
        """The history, for reading. Every write goes through this class."""
        self.origins = origins
        self.file_origins = file_origins
        self._open_recall = recall
        self._blobs = blobs
        self._person = person
        self._author = author or person
        self.edits = edits = ManualEdits(
            record.name,
            namespace,
            quota=record.quota,
            root=root,
            blobs=blobs,
            history=history,
            lock=lock,
            person=person,
            clock=clock,
            protection=protection,
        )
        """The edits that no caller of this class made, and the lock for every change."""
        self.tree = edits.tree
        """The files as they are now, of all programs."""
        self._quota = self.edits.quota
        # None of these refers to this object, so its descriptors are closed as soon as no caller has it.
        self._safe_replace = SafeReplace(
            blobs,
            read_object=history.read,
            store_object=history.keep,
            nonce=nonce,
            resolve=partial(_path_of, history),
            committed_file=lambda path: edits.check_precondition(path, ANY),
            on_merge=partial(_record_merge, edits, history, person),
        )
        self._here = LocalChange(edits, blobs, history, self._safe_replace)
        self.incoming = IncomingChanges(edits, history, self._safe_replace)
        """Changes that other machines made."""
        self.decided = DecidedFiles(edits, history, self._here, self.incoming, person)
        """The files as callers of an API read and write them."""

    @lazily
    def recall(self) -> Recall:
        return self._open_recall()

    @lazily
    def rewriting(self) -> Rewriting:
        from workspaces.workspace.rewriting import Rewriting

        return Rewriting(
            self.edits,
            self.history,
            self._blobs,
            self._safe_replace,
            indexes=(self.origins, self.file_origins, self.recall),
        )

    @property
    def record(self) -> WorkspaceRecord:
        """Return the record. One that was given as it is stored is validated at the first use."""
        if isinstance(self._given, StoredWorkspace):
            self._given = self._given.whole()
        return self._given

    def share(
        self,
        remote: Remote,
        *,
        are_records_shared: bool = False,
    ) -> None:
        """Share the files with other machines from now on. With `are_records_shared`, other servers answer
        the same callers."""
        self.edits.remote = remote
        self.edits.are_records_shared = are_records_shared

    def read(self, path: str, *, view: View = HEAD) -> File:
        """Return one file, as it is now or as a revision has it."""
        path = WorkspacePath(path)
        if view == HEAD:
            return File(path, self.edits.readable(path))
        blob = self.history.find(self.history.resolve(view), path)
        if blob is None:
            raise NotFound("file", path)
        return File(path, self.history.read(blob))

    def find_version(self, path: str, version: Version) -> bytes | None:
        """Return the bytes of a version of a file, as far back as its history is searched."""
        path = WorkspacePath(path)
        for revision in self.history.log(path=path, limit=VERSIONS_SEARCHED_MAX):
            blob = self.history.find(revision.id, path)
            data = self.history.read(blob) if blob else None
            if data is not None and version_of(data) == version:
                return data
        return None

    def files(self, *, view: View = HEAD) -> list[WorkspacePath]:
        """Return the files to read. Conflict copies wait for a person: they are problems and not in this
        list."""
        if view == HEAD:
            paths = list(self.tree.scan().files)
        else:
            paths = list(self.history.tree(self.history.resolve(view)))
        return [path for path in paths if not is_conflict(path)]

    def find(self, directory: str, matches: Callable[[str], bool]) -> list[Stat]:
        """Return the stats of the files below a directory ("" is the root) whose path matches. No file is
        read. Conflict copies are left out, as in `files`."""
        stats = self._blobs.find(directory, matches)
        return [stat for stat in stats if not is_conflict(stat.name)]

    def log(self, path: str | None = None, *, limit: int = 50) -> list[Revision]:
        return self.history.log(path=WorkspacePath(path) if path else None, limit=limit)

    def write(
        self,
        path: str,
        data: bytes | str,
        *,
        by: Author | None = None,
        expect: Version | Wildcard = ANY,
    ) -> Written:
        """Set a file. `expect` is the version the writer has seen, ABSENT, or ANY. `by` is the author of the
        revision; by default the principal that opened the workspace."""
        path, by = WorkspacePath(path), by or self._author
        data = as_bytes(data) if isinstance(data, str) else data
        self._quota.check_file(path, data)
        return self._set(path, data, by, expect)

    def plant(self, files: Mapping[str, bytes], *, by: Author) -> RevisionId | None:
        """Write the first files, as one revision.

        Raises: AlreadyExists when one of the files is there with another content.
        """
        first_files: Files = {WorkspacePath(path): data for path, data in files.items()}

        def plan(now: Files) -> Files:
            for path, data in now.items():
                if data not in {None, first_files[path]}:
                    raise AlreadyExists("file", path)
            return first_files

        return self.change(list(first_files), plan, by=by)

    def delete(
        self, path: str, *, by: Author | None = None, expect: Version | Wildcard = ANY
    ) -> Written:
        """Remove a file. Its last version stays in the history.

        Raises: NotFound when there is no file.
        """
        return self._set(WorkspacePath(path), None, by or self._author, expect)

    def adopt(self, path: str, *, by: Author, expect: Version | Wildcard = ANY) -> RevisionId:
        """Make a revision in which a person takes a file's body over, without changing the file.

        Raises: NotFound when there is no file; Conflict when it is not what `expect` says.
        """
        path = WorkspacePath(path)
        with self.edits.hold(by) as held:
            if self.edits.check_precondition(path, expect) is None:
                raise NotFound("file", path)
            revision = self.history.record({}, by.saying(ADOPTED, path))
            held.fulfilled()
            return revision

    @contextmanager
    def command(self, by: Author) -> Generator[Command]:
        """Hold the tree for a program that knows no conditions, such as a shell.
        Edits from before are the person's. Changes after it are `by`'s, however the program ends. All others
        wait, and so does this process: nothing may be written through a workspace inside this block."""
        with self.edits.hold(by) as held:
            taken = self._blobs.mend()
            self.edits.record_whole()
            held.intend(by, None)
            command = Command(taken=taken, before=self.edits.last_scan)
            try:
                yield command
            finally:
                self._blobs.mend()
                command.revision = self.edits.record_whole(by)
                command.after, command.put_back = self.edits.last_scan, self.edits.put_back
                held.fulfilled()

    def restore(self, path: str, view: View, *, by: Author | None = None) -> Written:
        """Set a file to its content at a revision, or delete it if it was not there, as a new revision."""
        path = WorkspacePath(path)
        revision = self.history.resolve(view)
        blob = self.history.find(revision, path)
        by = (by or self._author).saying("Restored", revision or "")
        if blob is None:
            return self.delete(path, by=by)
        return self.write(path, self.history.read(blob), by=by)

    def revert(self, view: View, *, by: Author | None = None) -> RevisionId | None:
        """Undo one revision, and nothing else, as a new revision. Return None if it is undone already.

        Raises: LinesChanged when lines of it were rewritten since.
        """
        undo = self._undo(view)
        by = (by or self._author).saying("Reverted", undo.revision)
        return self.change(undo.paths, undo.plan, by=by)

    def undo(self, view: View, *, by: Author, may_wait: bool = False) -> FilesChange:
        """Undo one revision over an API. Where several servers share the records, the store decides about
        each file in turn. Else this is `revert`.

        Raises: as `revert` does. Undecided when the store does not answer, unless the caller `may_wait`.
        """
        undo = self._undo(view)
        by = by.saying("Reverted", undo.revision)
        is_undecided = False
        if self.decided.is_register:
            try:
                return self.decided.change(undo.paths, undo.plan, by=by)
            except Undecided:
                if not may_wait:
                    raise
                is_undecided = True
        done: dict[WorkspacePath, Written] = {}

        def plan(now: Files) -> Files:
            after = undo.plan(now)
            done.clear()
            for path, data in after.items():
                done[path] = Written(path, None if data is None else version_of(data), None)
            return after

        revision = self.change(undo.paths, plan, by=by)
        return FilesChange(revision, tuple(done.values()), is_undecided=is_undecided)

    def change(
        self, paths: Sequence[WorkspacePath], plan: EditFiles, *, by: Author
    ) -> RevisionId | None:
        """Change several files as one revision. `plan` gets their content after manual edits are committed,
        and returns the new content."""
        revision: RevisionId | None = None
        with self.edits.hold(by) as held:
            for _ in attempts():
                current = {path: self.edits.check_precondition(path, ANY) for path in paths}
                new_files = plan(
                    {path: blob.data if blob else None for path, blob in current.items()}
                )
                new_files, put_back = self._protected(new_files, current, by)
                for path, data in new_files.items():
                    self._here.check(path, data, current[path])
                held.intend(by, list(new_files))
                done, failure = self._put_all(new_files, current)
                if done:
                    revision = self.history.record(done, told(by, put_back))
                held.fulfilled()
                if failure is None:
                    return revision
                if not isinstance(failure, Conflict):
                    raise failure
        raise contended(", ".join(paths))

    @contextmanager
    def staging(self) -> Generator[Callable[[bytes], Staged]]:
        """Put incoming files aside as they arrive. Files not brought in within the block are removed, and so
        are those that a dead process left.
        One caller at a time: a caller that stages keeps out all others."""
        self._blobs.unstage()
        try:
            yield self._blobs.stage
        finally:
            self._blobs.unstage()

    def staying(self, expected: Mapping[WorkspacePath, ObjectId | None]) -> set[WorkspacePath]:
        """Return those files that are still as `expected` (None: deleted). The lock is held, because
        between two moves of a replacement a file is in a state that it may not keep."""
        if not expected:
            return set()
        with self.edits.hold(SYNC):
            return {path for path, state in expected.items() if self.edits.object_at(path) == state}

    def wait_for_writers(self) -> None:
        """Wait until every process that is changing the files has finished and has recorded its changes."""
        with self.edits.hold(SYNC):
            pass

    def displaced(self) -> list[Label]:
        """Return the labels of replaced files. The lock is needed: a file that a process is about to put in
        also lies there, under the label of the file that will come out."""
        if not self._blobs.labels():
            return []
        with self.edits.hold(self._person):
            return self._blobs.labels()

    def look_again(self, labels: Sequence[Label]) -> list[WorkspacePath]:
        """Check files that were replaced some time ago for late writes. What a program wrote to them since
        comes back, as the person's. Return the paths where it now is."""
        with self.edits.hold(self._person):
            paths = {path for label in labels if (path := self._safe_replace.path_of(label))}
            self.edits.record(paths)
            late_writes = [
                path for label in labels if (path := self._safe_replace.check_late_writes(label))
            ]
            if late_writes:
                self.edits.record(late_writes)
        return late_writes

    def identity(self) -> str | None:
        """Return an id of the workspace's directory. Return None if the directory is not where it should
        be."""
        return self._blobs.identity() if self._blobs.is_at(self.root) else None

    def tidy(self) -> None:
        """Pack the history. No reader sees a difference afterwards."""
        # a crash has left an erasure undone
        if self.edits.remote is None and self.history.is_replaced:
            self.rewriting.erase(by=self._person)
            return
        with self.edits.hold(self._person):
            self.history.pack()

    @contextmanager
    def at_rest(self, *, wait_s: float = WAIT_S) -> Generator[None]:
        """Hold the writer lock after committing manual edits. In this block tree and history agree, and only
        programs without the lock change the tree."""
        with self.edits.hold(self._person, wait_s):
            self.edits.record_whole()
            yield

    def _undo(self, view: View) -> _Undo:
        from workspaces.history.revert import touched_paths, undo_changes

        revision = self.history.show(view).revision.id

        def plan(now: Files) -> Files:
            return undo_changes(self.history, revision, now)

        return _Undo(revision, touched_paths(self.history, revision), plan)

    def _set(
        self, path: WorkspacePath, data: bytes | None, by: Author, expect: Version | Wildcard
    ) -> Written:
        """Give a file this content (None: delete it). The store decides if the writer expects a version."""

        def plan(before: bytes | None) -> bytes | None:
            version = None if before is None else version_of(before)
            if not is_met(expect, version):
                if expect is ABSENT:
                    raise AlreadyExists("file", path)
                raise Conflict("file", path, expected=expect, actual=version)
            return data

        if self.edits.remote is not None and expect is not ANY:
            return self.decided.decide(path, plan, by=by, is_register=False)
        return self.decided.edit_here(path, plan, by)

    def _protected(
        self, files: Files, files_before: Mapping[WorkspacePath, Blob | None], by: Author
    ) -> tuple[Files, list[PutBack]]:
        """Return the files as this writer may change them, and what was put back."""
        rules = self.edits.protection
        allowed, done = dict(files), list[PutBack]()
        for path, data in files.items():
            current = files_before[path]
            put_back = rules.of(path, current.data if current else None, data, by)
            if put_back is not None:
                done.append(put_back)
                allowed[path] = put_back.data
                if put_back.data == (current.data if current else None):
                    del allowed[path]
        return allowed, done

    def _put_all(
        self, new_files: Files, files_before: Mapping[WorkspacePath, Blob | None]
    ) -> tuple[dict[WorkspacePath, bytes | None], Failure | None]:
        """Write files. Return those that were written, and the failure that ended it early. Conflict means
        that a program without the lock changed a file first."""
        done: dict[WorkspacePath, bytes | None] = {}
        for path, data in new_files.items():
            current = files_before[path]
            expect = current.token if current else ABSENT
            try:
                if data is None:
                    self._blobs.delete(path, expect=expect)
                else:
                    self._blobs.write(path, data, expect=expect)
            except Failure as failure:
                return done, failure
            done[path] = data
        return done, None


def _record_merge(
    edits: ManualEdits,
    history: History,
    person: Author,
    path: WorkspacePath,
    merged: MergeResult,
    out: bytes,
) -> None:
    """Record that what a program wrote to a replaced file was merged back into the file. If one of both is
    forbidden, the file is held back, and no revision has either."""
    if merged.is_clean or any(edits.held_back.refusal(path, one) for one in (merged.data, out)):
        edits.record([path])
        return
    summary = trailer_of({path: describe_merge(merged.overlaps, merged.clashes)})
    history.record({path: merged.data}, person.saying(MERGED, summary), beside={path: out})


def _path_of(history: History, displaced: Displaced) -> WorkspacePath | None:
    """Return the path of a file that is there, or was there lately."""
    current_paths = history.tree(history.tip())
    path_found = next((path for path in current_paths if displaced.is_of(path)), None)
    if path_found is not None:
        return path_found
    recent = history.log(limit=VERSIONS_SEARCHED_MAX)
    recent_paths = (WorkspacePath(path) for one in recent for path in one.paths)
    return next((path for path in recent_paths if displaced.is_of(path)), None)
