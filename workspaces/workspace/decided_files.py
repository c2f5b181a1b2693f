"""Read and write single files so that all servers of a workspace agree: the one door for every write over an
API (files, restore, revert, facts, blocks), and for the reads that must see those writes.

    unconditional        checked by its caller (`check`)
    ─────────────────────────────────────────────────────────────────────────────────────────────
    the files are only here             the writer lock decides              the writer lock decides
    shared in S3, own records           here first; sync sends it            the store decides
    shared in S3, shared records        the store decides                    the store decides

Where records are shared, several servers answer the same callers. Then the object of a file is its
*register*: the one place that all servers read and write. A write happens at the moment in which the store
accepts its conditional PUT or DELETE. A read asks the store once, with the token of what both sides had last.

**A decision.** All of this happens under the writer lock, in this order. An edit by hand is committed. If the
file here is not what both sides had last, it is sent first, so that no answer goes past it. If the object
was changed elsewhere, it is brought here first. If both happened, the lock is let go and sync merges them.
Only now the caller's function sees the content and returns the new one, and the store decides by the token of
exactly that content. The file here follows last. A refusal by the store means: ask it, and begin again.

The store is not asked before a write that can succeed without. The condition of its PUT is the question. But
an answer that is no PUT (a refused condition, a file that is missing or already so) is given only after the
store was asked.

**What is not sent here.** A deletion by hand waits for the sync, which looks at the whole tree and asks if
most files vanished. Until then the register keeps the file.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from workspaces.conditions import ANY
from workspaces.coordination.writer_lock import HeldLock
from workspaces.durability import HERE, Durable
from workspaces.errors import (
    Conflict,
    Failure,
    ForbiddenText,
    MassDeletion,
    NotFound,
    Unavailable,
    Undecided,
    WorkspaceBusy,
)
from workspaces.file import File, as_bytes
from workspaces.history.history import History, View
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath
from workspaces.revision import SYNC, Author, RevisionId
from workspaces.storage.blobs import Blob
from workspaces.storage.contention import attempts, contended
from workspaces.workspace.incoming_changes import IncomingChange, IncomingChanges
from workspaces.workspace.local_change import LocalChange
from workspaces.workspace.manual_edits import ManualEdits
from workspaces.workspace.protection import PutBack, told
from workspaces.workspace.remote_port import ObjectState, Remote, RemoteEntry

if TYPE_CHECKING:
    from workspaces.history.revert import Files

PAUSE_S_MAX = 0.01
"""Longest pause after a refusal: about one answer of the store, so that the other servers finish."""

EDITS_SENT_MAX = 32
"""Edits by hand that one listing sends first: a second at 30 ms each. The sync sends more."""

VersionCheck = Callable[[Version | None], object]
"""Raises if a caller's condition does not hold for the present version of a file (None: there is none)."""

EditFile = Callable[[bytes | None], bytes | None]
"""Returns the new content of a file from its present content. None: there is no file. It may be called
several times, under the writer lock, and raises to refuse. What it raises reaches the caller."""


EditFiles: TypeAlias = "Callable[[Files], Files]"
"""Returns the new content of files (None: deleted) from their present content."""


@dataclass(frozen=True, slots=True)
class Written:
    path: WorkspacePath
    version: Version | None
    """None after a delete."""
    revision: RevisionId | None
    """None if the file had these bytes already: nothing changed, so no revision was made."""
    durable: Durable = HERE
    created: bool = False
    """No file was there before."""
    put_back: PutBack | None = None
    """What of the change was put back, because a model may not change it."""
    is_undecided: bool = False
    """True if the store did not answer and the caller takes a write that waits: it is here, and the sync
    sends it. What others wrote meanwhile is then merged with it."""


@dataclass(frozen=True, slots=True)
class FilesChange:
    """A change of several files."""

    revision: RevisionId | None
    """The last revision. None if nothing changed."""
    done: tuple[Written, ...] = ()
    left: tuple[tuple[WorkspacePath, Failure], ...] = ()
    """Files that are not changed, with the reason. Others were changed before it was known."""
    durable: Durable = HERE
    is_undecided: bool = False
    """As in `Written`."""


class DecidedFiles:
    """The files of one workspace, as callers of an API read and write them."""

    def __init__(
        self,
        edits: ManualEdits,
        history: History,
        here: LocalChange,
        incoming: IncomingChanges,
        person: Author,
    ) -> None:
        self._edits = edits
        self._history = history
        self._here = here
        self._incoming = incoming
        self._person = person

    @property
    def is_register(self) -> bool:
        """Return True if the store decides every read and write, because several servers share the
        records."""
        return self._edits.remote is not None and self._edits.are_records_shared

    def read(self, path: str) -> File:
        """Return a file with everything that was answered before, by any server. One request where records
        are shared; else the file here.

        Raises: NotFound. Unavailable when the store does not answer.
        """
        path = WorkspacePath(path)
        remote = self._edits.remote
        if remote is None or not self.is_register:
            return File(path, self._edits.readable(path))
        known, local = remote.known(path), self._readable(path)
        if local is not None and local.version != known.agreed:
            state = self._settled(remote, path)
        else:
            state = remote.ask(path, known)
        return File(path, self._bytes_of(remote, path, state, local))

    def version(self, path: str) -> Version | None:
        """Return the version of a file as `read` would, or None if there is none."""
        try:
            return self.read(path).version
        except NotFound:
            return None

    def list(self) -> list[RemoteEntry]:
        """Return all files, ascending by path. Where records are shared, one request for each thousand
        names."""
        remote = self._edits.remote
        tree = self._edits.tree.scan()
        if remote is None or not self.is_register:
            return [RemoteEntry(path, one.size, one.version) for path, one in tree.files.items()]
        known = remote.known_versions()
        edited = (path for path, one in tree.files.items() if known.get(path) != one.version)
        self._send(remote, list(islice(edited, EDITS_SENT_MAX)))
        return list(remote.list())

    def write(
        self,
        path: str,
        data: bytes | str,
        *,
        by: Author,
        check: VersionCheck | None = None,
        may_wait: bool = False,
    ) -> Written:
        """Set a file to these bytes. `check` is the caller's condition.

        With `may_wait`, an unconditional write that no store can decide now is kept here and sent later.

        Raises: what `check` raises. Undecided when the store does not answer. AlreadyExists for another file
        whose name differs only in case. OverLimit.
        """
        content = as_bytes(data) if isinstance(data, str) else data
        return self.edit(path, lambda _: content, by=by, check=check, may_wait=may_wait)

    def delete(
        self, path: str, *, by: Author, check: VersionCheck | None = None, may_wait: bool = False
    ) -> Written:
        """Delete a file. Its last version stays in the history.

        Raises: NotFound when there is no file; and as `write` does.
        """
        return self.edit(path, lambda _: None, by=by, check=check, may_wait=may_wait)

    def edit(
        self,
        path: str,
        edit: EditFile,
        *,
        by: Author,
        check: VersionCheck | None = None,
        may_wait: bool = False,
    ) -> Written:
        """Change a file by a function of its present content: read, change and write as one step.

        `edit` returns None to delete the file. Without `check`, a write of another server at the same moment
        is simply the content that `edit` sees next.

        Raises: as `write` does; NotFound if `edit` deletes a missing file; what `edit` raises.
        """
        path, remote = WorkspacePath(path), self._edits.remote
        plan = edit if check is None else _checked(edit, check)
        is_decided = remote is not None and (self.is_register or check is not None)
        if remote is None or not is_decided:
            return self.edit_here(path, plan, by)
        try:
            return self.decide(path, plan, by=by, is_register=self.is_register)
        except Undecided:
            if not may_wait or check is not None:  # only the store can say that a condition holds
                raise
            return replace(self.edit_here(path, plan, by), is_undecided=True)

    def restore(self, path: str, view: View, *, by: Author, may_wait: bool = False) -> Written:
        """Set a file to its content at a revision, or delete it if it was not there, as a new revision."""
        path = WorkspacePath(path)
        revision = self._history.resolve(view)
        blob = self._history.find(revision, path)
        data = None if blob is None else self._history.read(blob)
        by = by.saying("Restored", revision or "")
        return self.edit(path, lambda _: data, by=by, may_wait=may_wait)

    def change(self, paths: Sequence[WorkspacePath], plan: EditFiles, *, by: Author) -> FilesChange:
        """Change several files where the store decides: one after the other, each on its newest content.

        First `plan` sees all of them. If it refuses, nothing is changed. Then it sees each file again, alone,
        when that is decided.
        """
        now: dict[WorkspacePath, bytes | None] = {path: self._content(path) for path in paths}
        planned = list(plan(now))
        done: list[Written] = []
        for number, path in enumerate(planned):

            def one(before: bytes | None, path: WorkspacePath = path) -> bytes | None:
                after = plan({path: before})
                if path not in after:
                    raise _NothingToDo
                return after[path]

            try:
                done.append(self.edit(path, one, by=by))
            except _NothingToDo:
                continue
            except Failure as failure:
                if not done:
                    raise
                return _changed(done, [(other, failure) for other in planned[number:]])
        return _changed(done, [])

    def decide(
        self, path: WorkspacePath, plan: EditFile, *, by: Author, is_register: bool
    ) -> Written:
        """Let the store decide a change, then change the file here. Without `is_register`, `plan` sees the
        file here even if somebody has just deleted it here.

        Raises: Undecided when the store does not answer.
        """
        remote = self._edits.remote
        if remote is None:
            raise Unavailable(path, "the workspace is connected to no store")
        for _ in attempts():
            with self._edits.hold(by) as held:
                try:
                    decision = self._decision(remote, held, path)
                    return decision.make(plan, by, is_register=is_register)
                except _BothChanged:
                    pass
            with _deciding(path):
                remote.refresh(path)
        raise contended(path)

    def edit_here(self, path: WorkspacePath, plan: EditFile, by: Author) -> Written:
        """Change the file here, decided by the writer lock alone."""
        with self._edits.hold(by) as held:
            for _ in attempts():
                current = self._edits.check_precondition(path, ANY)
                before = current.data if current else None
                data = plan(before)
                if data is None and before is None:
                    raise NotFound("file", path)
                put_back = self._edits.protection.of(path, before, data, by)
                data = data if put_back is None else put_back.data
                if data == before:
                    return Written(path, _version(data), None, put_back=put_back)
                self._here.check(path, data, current)
                author = told(by, () if put_back is None else (put_back,))
                try:
                    revision = self._here.put(held, path, data, author, current)
                except Conflict:
                    continue  # an editor saved without the lock: commit its edit first
                is_new = before is None
                return Written(path, _version(data), revision, created=is_new, put_back=put_back)
        raise contended(path)

    def _send(self, remote: Remote, paths: Sequence[WorkspacePath]) -> None:
        """Send files that changed here, if the lock is free. What is not sent now waits for the sync."""
        if not paths:
            return
        with (
            suppress(WorkspaceBusy, _BothChanged, MassDeletion, ForbiddenText),
            self._edits.hold(self._person, wait_s=0) as held,
        ):
            for path in paths:
                self._decision(remote, held, path).settled(is_register=True, is_sure=False)

    def _settled(self, remote: Remote, path: WorkspacePath) -> ObjectState:
        """Send what changed here, if the lock is free, and return the state of the object."""
        try:
            with self._edits.hold(self._person, wait_s=0) as held:
                return self._decision(remote, held, path).settled(is_register=True)
        except (WorkspaceBusy, _BothChanged, MassDeletion, ForbiddenText):
            return remote.ask(path, remote.known(path))

    def _content(self, path: WorkspacePath) -> bytes | None:
        try:
            with _deciding(path):
                return self.read(path).data
        except NotFound:
            return None

    def _decision(self, remote: Remote, held: HeldLock, path: WorkspacePath) -> _Decision:
        return _Decision(
            self._edits,
            self._history,
            self._here,
            self._incoming,
            remote=remote,
            held=held,
            path=path,
        )

    def _readable(self, path: WorkspacePath) -> Blob | None:
        try:
            return self._edits.blob(path)
        except Failure:  # no readable file is here: the object counts
            return None

    def _bytes_of(
        self, remote: Remote, path: WorkspacePath, state: ObjectState, local: Blob | None
    ) -> bytes:
        if state.version is None:
            raise NotFound("file", path)
        data = local.data if local and local.version == state.version else None
        data = _object_bytes(self._history, remote, path, state) if data is None else data
        if data is None:
            raise NotFound("file", path)
        return data


class _NothingToDo(Exception):
    """Another server has made the same change."""


class _BothChanged(Exception):
    """Both sides have changed the file: sync must merge them, without the lock."""


class _Moved(Exception):
    """The store refused a write, because another server was faster."""


class _Decision:
    """One decision about one file, while the writer lock is held."""

    def __init__(
        self,
        edits: ManualEdits,
        history: History,
        here: LocalChange,
        incoming: IncomingChanges,
        *,
        remote: Remote,
        held: HeldLock,
        path: WorkspacePath,
    ) -> None:
        self._edits = edits
        self._history = history
        self._here = here
        self._incoming = incoming
        self._remote = remote
        self._held = held
        self._path = path
        with _deciding(path):
            self._state = remote.known(path)

    def settled(self, *, is_register: bool, is_sure: bool = True) -> ObjectState:
        """Return the state of the object, once what changed here is sent. With `is_sure`, the store has said
        so, and what changed there is here."""
        for _ in attempts():
            try:
                self._settle(is_register=is_register)
            except _Moved:
                self._ask()
                continue
            if self._state.is_asked or not is_sure:
                return self._state
            self._ask()
        raise _BothChanged

    def make(self, plan: EditFile, by: Author, *, is_register: bool) -> Written:
        """Carry out a change. `plan` is called until the store accepts its result."""
        path = self._path
        for tries in attempts():
            try:
                local = self._settle(is_register=is_register)
                is_local = not is_register or _version_of(local) == self._state.version
                before = _data(local) if is_local else self._object()
                try:
                    data = plan(before)
                    if data is None and before is None:
                        raise NotFound("file", path)
                except Failure:
                    if self._state.is_asked or not is_register:
                        raise
                    self._ask()  # refused on what may be old
                    continue
                put_back = self._edits.protection.of(path, before, data, by)
                data = data if put_back is None else put_back.data
                if _version(data) == self._state.version and not self._state.is_asked:
                    self._ask()  # nothing to write, if the store still has that
                    continue
                self._here.check(path, data, local)
                if _version(data) != self._state.version:
                    self._write(data, by)
            except _Moved:
                time.sleep(random.uniform(0, PAUSE_S_MAX) if tries else 0)  # noqa: S311 - spreads servers
                self._ask()
                continue
            author = told(by, () if put_back is None else (put_back,))
            stamp = self._state.stamp
            revision, has_followed = self._here.follow(
                self._held, path, data, author, local, at=stamp
            )
            if has_followed:
                self._remote.agree(path, self._state)
            is_new = before is None and data is not None
            durable = Durable(files="s3")
            return Written(path, _version(data), revision, durable, is_new, put_back)
        raise contended(path)

    def _settle(self, *, is_register: bool) -> Blob | None:
        """Make both sides the same, as far as the state of the object is known. Return the file here.

        Raises: _Moved when the store refuses. _BothChanged when the two must be merged.
        """
        for _ in attempts():
            local = self._edits.check_precondition(self._path, ANY)
            here, state = _version_of(local), self._state
            if here == state.version:
                if state.is_asked and not state.is_agreed:
                    self._agree()
                return local
            if here == state.agreed:  # changed only there
                self._bring(here)
            elif state.version != state.agreed:
                raise _BothChanged
            elif not is_register or local is None:
                return local  # changed only here: the caller's write replaces it, or sync deletes the object
            else:
                self._write(local.data, None)
                self._agree()
        raise _BothChanged

    def _object(self) -> bytes | None:
        with _deciding(self._path):
            return _object_bytes(self._history, self._remote, self._path, self._state)

    def _bring(self, here: Version | None) -> None:
        """Give the file here the content of the object. What a person saves meanwhile is merged back."""
        data = self._state.data
        if self._state.version is not None and data is None:
            raise _BothChanged
        change = IncomingChange(self._path, data, here, origin=self._state.origin)
        result = self._incoming.apply_held(self._held, [change], SYNC)
        if result.refused:
            raise Unavailable(self._path, result.refused[0].detail)
        if not result.left:
            self._agree()

    def _agree(self) -> None:
        self._remote.agree(self._path, self._state)
        self._state = replace(self._state, agreed=self._state.version, is_agreed=True)

    def _ask(self) -> None:
        with _deciding(self._path):
            self._state = self._remote.ask(self._path, self._remote.known(self._path))

    def _write(self, data: bytes | None, by: Author | None) -> None:
        with _deciding(self._path):
            try:
                self._state = self._remote.write(self._path, data, self._state, by)
            except Conflict as refusal:
                raise _Moved from refusal


@contextmanager
def _deciding(path: WorkspacePath) -> Generator[None]:
    """Raise Undecided if the store does not answer within the block."""
    try:
        yield
    except Undecided:
        raise
    except Unavailable as error:
        raise Undecided(path, error) from error


def _changed(done: Sequence[Written], left: Sequence[tuple[WorkspacePath, Failure]]) -> FilesChange:
    revisions = [written.revision for written in done if written.revision is not None]
    last = revisions[-1] if revisions else None
    return FilesChange(last, tuple(done), tuple(left), Durable(files="s3"))


def _checked(edit: EditFile, check: VersionCheck) -> EditFile:
    def checked(before: bytes | None) -> bytes | None:
        check(_version(before))
        return edit(before)

    return checked


def _object_bytes(
    history: History, remote: Remote, path: WorkspacePath, state: ObjectState
) -> bytes | None:
    """Return the bytes of the object: just received, or from the history, or else by one more request."""
    if state.version is None or state.data is not None:
        return state.data
    if state.object_id is not None:
        with suppress(Failure):
            return history.read(state.object_id)
    return remote.ask(path, state, whole=True).data


def _data(blob: Blob | None) -> bytes | None:
    return None if blob is None else blob.data


def _version(data: bytes | None) -> Version | None:
    return None if data is None else version_of(data)


def _version_of(blob: Blob | None) -> Version | None:
    return None if blob is None else blob.version
