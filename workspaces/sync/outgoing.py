"""What goes out: first into the history, then under a condition to the store, then into the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from workspaces.errors import Conflict, Failure, NotFound, OverLimit, Refused
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.revision import RevisionId
from workspaces.storage.blobs import Expect, Meta
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile
from workspaces.sync.counted_store import CountedStore
from workspaces.sync.read_cache import ReadCache
from workspaces.sync.recency import changed_at, decides
from workspaces.sync.reconcile import Push, PushDeletion
from workspaces.sync.report import SyncReport
from workspaces.sync.thread_pool import ThreadPool
from workspaces.tree.scan import FileState
from workspaces.workspace.workspace import Workspace

ROWS_AT_ONCE = 100
"""So many files at most are looked at again when somebody dies. Only the last rows wait for the disk, with
all that were taken before."""

Going = Push | PushDeletion

Sent = tuple[WorkspacePath, BaselineChange | Failure | None]
"""None: somebody was faster, on either side."""


class Outgoing:
    def __init__(
        self, workspace: Workspace, there: CountedStore, baseline: Baseline, crowd: ThreadPool
    ) -> None:
        self._workspace = workspace
        self._there = there
        self._baseline = baseline
        self._crowd = crowd

    def send(
        self,
        actions: Sequence[Going],
        base: Mapping[WorkspacePath, SyncedFile],
        here: Mapping[WorkspacePath, FileState],
        in_hand: ReadCache,
        report: SyncReport,
        done: Callable[[int], None] | None = None,
    ) -> list[WorkspacePath]:
        """`done` None: a push of a few files, whose caller does not wait until the rows are durable; but each
        is written as soon as it can be, since others may wait for that."""
        if not actions:
            return []
        found: dict[WorkspacePath, ObjectId | None] = {
            one.path: here[one.path].object_id if isinstance(one, Push) else None for one in actions
        }
        settled, tip = self._workspace.committed(found)
        meta = self._meta(tip)
        again = [action.path for action in actions if action.path not in settled]
        ready = [action for action in actions if action.path in settled]
        # MEMORY.md is the last one; the others need not wait for each other.
        last = [action for action in ready if action.path == "MEMORY.md"]
        first = [action for action in ready if action.path != "MEMORY.md"]
        for group in (first, last):
            again += self._send_together(group, base, here, in_hand, meta, report, done)
        return again

    def put(
        self, path: WorkspacePath, data: bytes | None, base: SyncedFile | None, *, expect: Expect
    ) -> BaselineChange:
        """One file, or its deletion (None). Conflict, Unavailable. The step is to be taken once the file
        here is the same."""
        if data is None:
            return self._deleted(path, base, expect)
        state = FileState(version_of(data), blob_id(data), len(data))
        stamp = self._workspace.history.next_stamp()  # its revision follows
        meta = {**self._meta(self._workspace.tip()), "stamp": stamp}
        return self._put(path, data, state, base, expect, meta)

    def _meta(self, tip: RevisionId | None) -> Meta:
        """What a person who looks into the bucket is told of where a file came from."""
        if tip is None:
            return {}
        return {"revision": tip, "stamp": self._workspace.history.commit(tip).at}

    def _send_together(
        self,
        actions: Sequence[Going],
        base: Mapping[WorkspacePath, SyncedFile],
        here: Mapping[WorkspacePath, FileState],
        in_hand: ReadCache,
        meta: Meta,
        report: SyncReport,
        done: Callable[[int], None] | None,
    ) -> list[WorkspacePath]:
        """All at the same time. Whatever fails, what has been done stands in the baseline."""
        if not actions:
            return []
        rows = {one.path: base.get(one.path) for one in actions} | self._going(actions, base)
        again: list[WorkspacePath] = []
        steps: list[BaselineChange] = []
        failure: Failure | None = None

        def send(one: Going) -> Sent:
            sent = self._sent(one, rows[one.path], here, in_hand, meta)
            return sent if done is not None else self._written(sent)

        outcomes = self._crowd.all(send, actions)
        for path, outcome in outcomes:
            if isinstance(outcome, BaselineChange):
                report.pushed.append(path)
                steps.append(outcome)
            elif isinstance(outcome, Refused | OverLimit):
                report.refused.append(Problem(path, "unreadable", str(outcome)))
                report.unsent.add(path)
            elif outcome is None:
                again.append(path)
            else:
                failure = failure or outcome
            if done is not None:
                self._write_most(steps)
                done(1)
        if done is not None:
            self._baseline.take(steps)
        if failure is not None:
            raise failure
        return again

    def _written(self, sent: Sent) -> Sent:
        """In the thread that has sent it: others may take longer."""
        _, outcome = sent
        if isinstance(outcome, BaselineChange):
            self._baseline.take([outcome], wait=False)
        return sent

    def _write_most(self, steps: list[BaselineChange]) -> None:
        """All but the last, where there are many."""
        if len(steps) > ROWS_AT_ONCE:
            self._baseline.take(steps[:-1], wait=False)
            del steps[:-1]

    def _going(
        self, actions: Sequence[Going], base: Mapping[WorkspacePath, SyncedFile]
    ) -> dict[WorkspacePath, SyncedFile]:
        """The rows of what is about to be deleted there. They say so before it is asked for."""
        going = {one.path: base[one.path] for one in actions if isinstance(one, PushDeletion)}
        self._baseline.take(BaselineChange(path, row, row.going) for path, row in going.items())
        return {path: row.going for path, row in going.items()}

    def _sent(
        self,
        action: Going,
        base: SyncedFile | None,
        here: Mapping[WorkspacePath, FileState],
        in_hand: ReadCache,
        meta: Meta,
    ) -> Sent:
        path = action.path
        try:
            if isinstance(action, PushDeletion):
                return path, self._deleted(path, base, action.expect)
            data = in_hand.find(path)
            if data is None:
                data = self._workspace.read(path).data
                if version_of(data) != action.version:
                    return path, None
            if base is not None and decides(data):
                meta = {**meta, "stamp": changed_at(self._workspace.history, path)}
            return path, self._put(path, data, here[path], base, action.expect, meta)
        except (Conflict, NotFound):
            return path, None
        except Failure as failure:
            return path, failure

    def _put(
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

    def _deleted(
        self, path: WorkspacePath, base: SyncedFile | None, expect: Expect
    ) -> BaselineChange:
        self._there.delete(path, expect=expect)
        return BaselineChange(path, base, None)
