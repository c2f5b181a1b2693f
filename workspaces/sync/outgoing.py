"""Send local changes: record them in the history, write to the store conditionally, then update the
baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from workspaces.errors import Conflict, Failure, NotFound, OverLimit, Refused
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import Author, RevisionId
from workspaces.storage.blobs import Expect, Meta
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile
from workspaces.sync.counted_store import CountedStore
from workspaces.sync.object_origin import ObjectOrigin, origin_to_come, origins_of
from workspaces.sync.read_cache import ReadCache
from workspaces.sync.reconcile import Push, PushDeletion
from workspaces.sync.report import SyncReport
from workspaces.sync.thread_pool import ThreadPool
from workspaces.timestamp import Stamp
from workspaces.tree.scan import FileState
from workspaces.workspace.workspace import Workspace

ROWS_AT_ONCE = 100
"""Largest number of files that are compared again after a crash. Only the last rows wait for the disk,
and they make all earlier rows durable."""

OutgoingAction = Push | PushDeletion

SendResult = tuple[WorkspacePath, BaselineChange | Failure | None]
"""A path, and its new row or the failure. None: another writer changed the file first, on either side."""


class Outgoing:
    def __init__(
        self, workspace: Workspace, there: CountedStore, baseline: Baseline, pool: ThreadPool
    ) -> None:
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._pool = pool

    def send(
        self,
        actions: Sequence[OutgoingAction],
        base: Mapping[WorkspacePath, SyncedFile],
        here: Mapping[WorkspacePath, FileState],
        read_cache: ReadCache,
        report: SyncReport,
        on_done: Callable[[int], None] | None = None,
    ) -> list[WorkspacePath]:
        """Send the actions, and return the paths that must be planned again.

        Without `on_done`, this is a push of a few files. Its caller does not wait until the rows are
        durable. But each row is written as soon as possible, because other processes may wait for it.
        """
        if not actions:
            return []
        states: dict[WorkspacePath, ObjectId | None] = {
            action.path: here[action.path].object_id if isinstance(action, Push) else None
            for action in actions
        }
        committed_paths, tip = self._workspace.edits.committed(states)
        again = [action.path for action in actions if action.path not in committed_paths]
        ready = [action for action in actions if action.path in committed_paths]
        pushed = [action.path for action in ready if isinstance(action, Push)]
        origins = origins_of(self._workspace.history, pushed)
        # MEMORY.md goes last. The other files need not wait for each other.
        memory_index = [action for action in ready if action.path == "MEMORY.md"]
        others = [action for action in ready if action.path != "MEMORY.md"]
        for group in (others, memory_index):
            again += self._send_group(
                group,
                base=base,
                here=here,
                read_cache=read_cache,
                metas=partial(_meta, tip, origins),
                report=report,
                on_done=on_done,
            )
        return again

    def put(
        self,
        path: WorkspacePath,
        data: bytes | None,
        by: Author | None,
        *,
        expect: Expect,
    ) -> tuple[SyncedFile | None, Stamp | None]:
        """Send one file, or its deletion (None), and return the new row. The caller records that row once
        the file here has the same content.

        `by` is the author of the revision to come; None if the newest revision has the file like this. The
        revision to come takes the returned stamp.

        Raises: Conflict if the object does not match `expect`; Unavailable if the store does not answer.
        """
        if data is None:
            self._there.delete(path, expect=expect)
            return None, None
        state = FileState(version_of(data), blob_id(data), len(data))
        history = self._workspace.history
        if by is None:
            origin = origins_of(history, [path]).get(path)
        else:
            origin = origin_to_come(history, path, data, by)
        meta = _meta(history.tip(), {} if origin is None else {path: origin}, path)
        change = self._write(path, data, state, None, expect, meta)
        return change.after, None if by is None or origin is None else origin.stamp

    def _send_group(
        self,
        actions: Sequence[OutgoingAction],
        base: Mapping[WorkspacePath, SyncedFile],
        here: Mapping[WorkspacePath, FileState],
        read_cache: ReadCache,
        metas: Callable[[WorkspacePath], Meta],
        report: SyncReport,
        on_done: Callable[[int], None] | None,
    ) -> list[WorkspacePath]:
        """Send all actions at the same time. Whatever fails, the baseline contains the actions that
        succeeded."""
        if not actions:
            return []
        rows = {action.path: base.get(action.path) for action in actions}
        rows |= self._mark_deletions(actions, base)
        again: list[WorkspacePath] = []
        changes: list[BaselineChange] = []
        failure: Failure | None = None

        def send(action: OutgoingAction) -> SendResult:
            sent = self._send(action, rows[action.path], here, read_cache, metas)
            return sent if on_done is not None else self._record(sent)

        outcomes = self._pool.map(send, actions)
        for path, outcome in outcomes:
            if isinstance(outcome, BaselineChange):
                report.pushed.append(path)
                changes.append(outcome)
            elif isinstance(outcome, Refused | OverLimit):
                report.refused.append(Problem(path, "unreadable", str(outcome)))
                report.unsent.add(path)
            elif outcome is None:  # another writer was faster
                again.append(path)
            else:
                failure = failure or outcome
            if on_done is not None:
                self._record_most(changes)
                on_done(1)
        if on_done is not None:
            self._baseline.take(changes)
        if failure is not None:
            raise failure
        return again

    def _record(self, sent: SendResult) -> SendResult:
        """Write the row in the thread that sent the file, because other threads may take longer."""
        _, outcome = sent
        if isinstance(outcome, BaselineChange):
            self._baseline.take([outcome], wait=False)
        return sent

    def _record_most(self, changes: list[BaselineChange]) -> None:
        """Write all rows but the last, if there are many."""
        if len(changes) > ROWS_AT_ONCE:
            self._baseline.take(changes[:-1], wait=False)
            del changes[:-1]

    def _mark_deletions(
        self, actions: Sequence[OutgoingAction], base: Mapping[WorkspacePath, SyncedFile]
    ) -> dict[WorkspacePath, SyncedFile]:
        """Mark rows of files about to be deleted in the store, before the request, and return the rows."""
        rows = {
            action.path: base[action.path] for action in actions if isinstance(action, PushDeletion)
        }
        self._baseline.take(
            BaselineChange(path, row, row.being_deleted) for path, row in rows.items()
        )
        return {path: row.being_deleted for path, row in rows.items()}

    def _send(
        self,
        action: OutgoingAction,
        base: SyncedFile | None,
        here: Mapping[WorkspacePath, FileState],
        read_cache: ReadCache,
        metas: Callable[[WorkspacePath], Meta],
    ) -> SendResult:
        path = action.path
        try:
            if isinstance(action, PushDeletion):
                return path, self._delete(path, base, action.expect)
            data = read_cache.files.get(path)
            if data is None:
                data = self._workspace.read(path).data
                if version_of(data) != action.version:  # saved again since the survey
                    return path, None
            return path, self._write(path, data, here[path], base, action.expect, metas(path))
        except (Conflict, NotFound):
            return path, None
        except Failure as failure:
            return path, failure

    def _write(
        self,
        path: WorkspacePath,
        data: bytes,
        state: FileState,
        base: SyncedFile | None,
        expect: Expect,
        meta: Meta,
    ) -> BaselineChange:
        meta = {**meta, "version": state.version}
        token = self._there.write(path, data, expect=expect, meta=meta)
        return BaselineChange(path, base, SyncedFile(state.version, state.object_id, token))

    def _delete(
        self, path: WorkspacePath, base: SyncedFile | None, expect: Expect
    ) -> BaselineChange:
        self._there.delete(path, expect=expect)
        return BaselineChange(path, base, None)


def _meta(
    tip: RevisionId | None, origins: Mapping[WorkspacePath, ObjectOrigin], path: WorkspacePath
) -> Meta:
    """Return the words that go with a file: the newest revision here, and the file's origin."""
    origin = origins.get(path)
    words: Meta = {} if origin is None else origin.words
    return words if tip is None else {**words, "revision": tip}
