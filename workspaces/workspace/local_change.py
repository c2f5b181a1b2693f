"""Change one file here, together with the history. The caller holds the writer lock."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from workspaces.conditions import ABSENT
from workspaces.coordination.writer_lock import HeldLock
from workspaces.errors import AlreadyExists, Conflict, Failure, ForbiddenText
from workspaces.history.history import History
from workspaces.paths import WorkspacePath
from workspaces.revision import Author, RevisionId
from workspaces.storage.blobs import Blob
from workspaces.timestamp import Stamp
from workspaces.tree.port import LiveTree
from workspaces.tree.safe_replace import Replacement, SafeReplace
from workspaces.workspace.manual_edits import ManualEdits


class LocalChange:
    """Changes of single files of one workspace, under its rules: quota and names."""

    def __init__(
        self, edits: ManualEdits, blobs: LiveTree, history: History, replacements: SafeReplace
    ) -> None:
        self._edits = edits
        self._blobs = blobs
        self._history = history
        self._safe_replace = replacements

    def check(self, path: WorkspacePath, data: bytes | None, seen: Blob | None) -> None:
        """Raise OverLimit, AlreadyExists or ForbiddenText if the file may not have this content."""
        if data is not None:
            self._refuse_forbidden(path, seen.data if seen else None, data)
            self._edits.quota.check_file(path, data)
            self._edits.quota.take(data, seen)
            if seen is None:
                self._refuse_twin(path)

    def put(
        self,
        held: HeldLock,
        path: WorkspacePath,
        data: bytes | None,
        by: Author,
        current: Blob | None,
    ) -> RevisionId:
        """Give the file this content (None: delete it), and make the revision.

        Raises: Conflict when a program without the lock changed the file first.
        """
        expect = current.token if current else ABSENT
        with self._changing(held, by, path, data):
            if data is None:
                self._blobs.delete(path, expect=expect)
            else:
                self._blobs.write(path, data, expect=expect)
        revision = self._history.record({path: data}, by)
        held.fulfilled()
        return revision

    def follow(
        self,
        held: HeldLock,
        path: WorkspacePath,
        data: bytes | None,
        by: Author,
        current: Blob | None,
        *,
        at: Stamp | None = None,
    ) -> tuple[RevisionId | None, bool]:
        """Give the file here the content that the remote decided on. Return the revision, and True if the
        file has that content now. The revision's stamp is `at`, unless a revision here is as late.
        What a person saved at that moment is merged back. If the file was deleted meanwhile, the next sync
        decides."""
        seen = current.data if current else None
        if seen == data:
            return None, True
        held.intend(by, [path])
        replaced = self._safe_replace.put([Replacement(path, data, seen)])
        if path in replaced.refused:
            raise replaced.refused[path]
        revision = self._history.record({path: data}, by, at=at)
        held.fulfilled()
        self._safe_replace.restore(replaced.concurrent_saves.values())
        self._edits.record((path,))
        return revision, path in replaced.done

    @contextmanager
    def _changing(
        self, held: HeldLock, by: Author, path: WorkspacePath, after: bytes | None
    ) -> Generator[None]:
        """Declare the change of a file, and withdraw the declaration if the change fails. What another
        program writes there later is not ours.
        A change may stand although it failed, because the disk did not confirm it. It stays declared, and the
        next writer records it."""
        held.intend(by, [path])
        try:
            yield
        except Failure as failure:
            if isinstance(failure, Conflict) or not self._holds(path, after):
                held.fulfilled()
            raise

    def _holds(self, path: WorkspacePath, data: bytes | None) -> bool:
        try:
            blob = self._edits.blob(path)
        except Failure:
            return False
        return (blob.data if blob else None) == data

    def _refuse_forbidden(self, path: WorkspacePath, before: bytes | None, data: bytes) -> None:
        gate = self._edits.protection.gate
        if gate.version(is_fresh=True):
            places = gate.changed(path, before, data, take_pass=True)
            if places:
                gate.refused(places)
                raise ForbiddenText(path, places)

    def _refuse_twin(self, path: WorkspacePath) -> None:
        """Refuse a name that differs from an existing one only in case: on half of all disks the two are one
        file."""
        tip = self._history.tip()
        parts = path.split("/")
        for depth, part in enumerate(parts):
            directory = "/".join(parts[:depth])
            for name in self._history.named_alike(tip, directory, part):
                if name != part:
                    raise AlreadyExists("file", f"{directory}/{name}" if directory else name)
