"""Sync: make the files here and the objects in the store the same, without losing any write.

**The theory.** Two sides change independently, and neither can be stopped. An editor here may save at
any moment, and other machines write to the store. The `baseline` records the state on which both sides
last agreed. From the baseline, a scan of the tree and a listing of the store, `reconcile` decides an
action for each path. This module carries the actions out. An action only applies to the state on which
it was decided:

    there   a write or delete carries the token of that state, and the store refuses it if the object
            has another state by then (`If-Match`, `If-None-Match: *`)
    here    a file is replaced by the verified exchange of `safe_replace`; the replaced file is checked twice

Every state is committed as a revision before it is replaced. So every version that is replaced, here or
there, stays in the history. A state that both sides reached independently becomes a revision as well,
even if it is a deletion (0148). A refusal by the store is not an error. It means that the path must be
planned again. A person may save a file while it is being replaced. That save is merged into the incoming
version.

**Why a crash is safe at any point.** The baseline is written after the effect. A process that dies in
between leaves both sides equal and a baseline that lags behind. The next plan finds the path, reads both
sides, sees that they are equal and writes the row. There is no journal to replay, and none that could be
wrong. An interrupted replacement leaves the replaced file aside, under a label that names its expected
content. The next sync checks such files before anything else. A lost answer is handled in the same way.
The next plan finds out whether the write happened, as it does for a write by another machine.

**Why it converges.** If both sides changed, the two versions are merged (`merge_versions`), the version
in the store first. The merge counts as a change made here on top of the store's version. The safe
replacement writes it here, the row records the *store's* version as agreed, and the merge is pushed like
every other change, under the token of the store's version. If another machine was faster, that push
fails, and its version is merged in turn. Merges of the same two versions have the same bytes on every
machine, and conflict files have the same name.

**Order.** Revisions before pushes; notes before MEMORY.md; the row last.

Deliberately absent:

- Clocks. No time of any kind decides anything. Modification times save hashing in `tree`, and a stamp
  breaks the tie when both sides set one key of a front matter.
- Locks on the store. Conditions are enough, with the exception in `remote.leased_delete`.
- Deletion on a suspicion; see `Alarm`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import assert_never

from workspaces.conditions import ABSENT
from workspaces.errors import Failure, MassDeletion, NotFound
from workspaces.history.git.objects import blob_id
from workspaces.history.git.rewrite import Redaction, RewrittenHistory
from workspaces.ids import Version, version_of
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.problem import Problem
from workspaces.revision import SYNC, Author
from workspaces.storage.blobs import BlobStore, ErasedPast, Stat
from workspaces.sync.baseline import Baseline, BaselineChange, SyncedFile
from workspaces.sync.counted_store import CountedStore, ListFiles
from workspaces.sync.history_sync import FetchHistory as History
from workspaces.sync.history_sync import HistorySync
from workspaces.sync.incoming import FetchedFile, Incoming, IncomingAction
from workspaces.sync.object_origin import origin_in
from workspaces.sync.outbox import Outbox
from workspaces.sync.outgoing import Outgoing, OutgoingAction
from workspaces.sync.read_cache import ReadCache
from workspaces.sync.reconcile import (
    Compare,
    DropBaseline,
    Pull,
    PullDeletion,
    Push,
    PushDeletion,
    SyncPlan,
    action_for,
    reconcile,
)
from workspaces.sync.replication import Replication
from workspaces.sync.report import OnSyncProgress, SyncProgress, SyncReport
from workspaces.sync.survey import Survey, Surveyor
from workspaces.sync.thread_pool import THREADS, ThreadPool
from workspaces.tree.safe_replace import SECOND_LOOK_S
from workspaces.tree.scan import FileState
from workspaces.workspace.incoming_changes import Theirs
from workspaces.workspace.remote_port import ObjectState, RemoteEntry
from workspaces.workspace.workspace import Workspace

LISTED_EVERY_S = 60.0
"""Seconds between listings. A listing finds files that no history mentions, because a machine died or a
person wrote into the bucket."""

_ERASED = "erase"
"""Fact of the baseline: the files whose past versions in the store still have to be deleted."""

ROUNDS_MAX = 10
"""Times to plan a path again that others keep changing, before leaving it to the next sync."""


class Sync:
    """The sync of one workspace with one store. Threads may share it. Each process has its own."""

    def __init__(
        self,
        workspace: Workspace,
        there: BlobStore,
        baseline: Baseline,
        *,
        place: Callable[[], str],
        check: Callable[[], None] = lambda: None,
        listing: ListFiles | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        outbox: Outbox | None = None,
        pause: Callable[[float], None] = time.sleep,
        replication: Replication | None = None,
        threads: int = THREADS,
        clock: Callable[[], float] = time.monotonic,
        erase_past: Callable[[Collection[str]], ErasedPast] = lambda _: ErasedPast(0),
    ) -> None:
        """Connect a workspace to its store; nothing is requested yet.

        `place` returns the address of the store, once it can be asked. A baseline made with another
        address is discarded. `check` refuses a store that does not keep its conditions. `listing` yields
        every object, under a valid name or not. `alone` keeps other processes from syncing this tree at
        the same time. Processes that push anyway announce it in the `outbox`. `replication` replicates
        the history, which follows the files. `clock` returns seconds since any fixed moment. `erase_past`
        deletes for good what the store keeps of earlier versions of some files and of the history.
        """
        self._workspace = workspace
        self._there = CountedStore(there, listing or _scan_listing(there))
        self._baseline = baseline
        self._place = place
        self._check = check
        self._alone = alone
        self._pause = pause
        pool = ThreadPool(threads)
        self._surveyor = Surveyor(
            workspace, self._there, baseline, place=place, is_parallel=threads > 1
        )
        self._outbox = outbox or Outbox(None)
        self._incoming = Incoming(workspace, self._there, baseline, pool, self._outbox)
        self._outgoing = Outgoing(workspace, self._there, baseline, pool)
        self._history_sync = HistorySync(workspace, baseline, replication, is_parallel=threads > 1)
        self._clock = clock
        self._erase_past = erase_past
        self.not_erased: tuple[str, ...] = ()
        """Names of which the store refused to delete past versions, the last time a history was replaced."""
        self._is_ready = False
        self._listed_at: float | None = None

    def run(
        self,
        *,
        accept_deletions: bool = False,
        check: bool = False,
        on_progress: OnSyncProgress = lambda _done, _of: None,
    ) -> SyncReport:
        """Make both sides the same. With `check`, also make sure that the whole history is in the store.

        Raises: MassDeletion before any change; Unavailable in the middle, and then the finished actions
        stay done.
        """
        with self._reporting() as report:
            self._sync_all(report, on_progress, accept_deletions=accept_deletions, check=check)
        return report

    def plan(self) -> SyncPlan:
        """Return the plan that `run` would carry out now. It includes the question that `run` would ask
        first."""
        with self._alone():
            self._check()
            self._surveyor.load_stat_cache()
            survey = self._surveyor.survey()
        if self._baseline.fact("place") == self._place():
            return survey.plan
        here = {path: state.version for path, state in survey.here.items()}
        new_plan = reconcile({}, here, survey.there, held=survey.held)
        return SyncPlan(new_plan.actions, (*survey.plan.refused, *new_plan.refused))

    def pull(self) -> SyncReport:
        """Fetch the changes of other machines, and send local changes.

        This is one request while the head of their history names no new revision. It surveys everything
        if the last listing is older than `LISTED_EVERY_S`.
        """
        with self._reporting() as report:
            self._get_ready()
            is_recent = self._has_listed_lately() and not self._history_sync.is_lost
            if is_recent and not self._history_sync.has_moved(report):  # nothing new there
                self._send_dirty(report)
            else:
                self._sync_all(report, read_head=not is_recent)
        return report

    def push(self, paths: Iterable[WorkspacePath]) -> SyncReport:
        """Send the given changed paths with one conditional write each and no listing. The history
        follows later."""
        with self._reporting() as report:
            self._get_ready()
            if not self._try_send(paths, report):
                self._sync_all(report)
        return report

    def push_dirty(self) -> SyncReport:
        """Send the files that differ from the baseline, and then the history, without a listing."""
        with self._reporting() as report:
            self._get_ready()
            self._send_dirty(report)
        return report

    def refresh(self, path: WorkspacePath) -> None:
        """Apply the current object at one path to the file here."""
        with self._alone():
            self._get_ready()
            base = self._baseline.find(path)  # first, so that the object is not older than the row
            try:
                blob = self._there.read(path)
            except NotFound:
                blob = None
            local = self._surveyor.read(path)
            token = blob.token if blob else None
            action = action_for(path, base, local[0].version if local else None, token)
            if isinstance(action, Pull | PullDeletion | Compare | DropBaseline):
                known = {} if base is None else {path: base}
                fetched = {} if blob is None else {path: FetchedFile(blob, base)}
                self._incoming.put([action], fetched, known, SyncReport())
            elif blob is None and base is not None:  # gone there: the file here is new to the store
                self._baseline.take([BaselineChange(path, base, None)], wait=False)

    def replace_history(self, redaction: Redaction, *, by: Author) -> RewrittenHistory | None:
        """Rewrite the history in the store and then here, and erase the old one on both sides. The files are
        as they shall be, and both sides agree on them. May be repeated.

        Return None if others were faster: another machine, or somebody who wrote the text again.
        """
        with self._alone():
            self._get_ready()
            tip, rewritten = (
                self._workspace.history.tip(),
                self._workspace.history.rewrite(redaction),
            )
            if tip is None or rewritten is None:
                return None
            if self._workspace.history.differences(
                tip, rewritten.tip
            ):  # the text is in a file again
                return None
            # noted first: after a crash the rewritten history no longer tells these paths
            paths = rewritten.paths.union(self._paths_to_erase())
            self._baseline.note(_ERASED, json.dumps(sorted(paths)))
            if not self._history_sync.replace(rewritten, instead_of=tip):
                return None
            if self._workspace.rewriting.rewrite_history(redaction, by=by) is None:
                return None
            self._erase_replaced(by)
            return rewritten

    def _paths_to_erase(self) -> list[str]:
        return json.loads(self._baseline.fact(_ERASED) or "[]")

    def _erase_replaced(self, by: Author) -> None:
        """Erase a history that was replaced: on this disk, in the baseline and in the store."""

        def also() -> None:
            self._history_sync.erase_replaced()
            self.not_erased = self._erase_past(self._paths_to_erase()).refused
            self._baseline.note(_ERASED, "")
            self._baseline.erase_deleted()

        self._workspace.rewriting.erase(by=by, also=also)

    def known(self, path: WorkspacePath) -> ObjectState:
        """Return the state of the object that both sides had last. This and the next four methods implement
        `Remote`."""
        self._get_ready()
        row = self._baseline.find(path)
        if row is None:
            return ObjectState(None, None, None, None)
        if not row.is_being_deleted:
            return ObjectState(row.version, row.version, row.token, row.object_id)
        # the row names no version: the bytes tell
        version = version_of(self._workspace.history.read(row.object_id))
        return ObjectState(
            version, version, row.token, row.object_id, is_agreed=False, is_being_deleted=True
        )

    def known_versions(self) -> Mapping[WorkspacePath, Version]:
        self._get_ready()
        return {path: row.version for path, row in self._baseline.tree().items()}

    def ask(self, path: WorkspacePath, known: ObjectState, *, whole: bool = False) -> ObjectState:
        asked = replace(known, is_asked=True)
        try:
            if whole or known.token is None:
                blob = self._there.read(path)
            else:
                blob = self._there.read_if_changed(path, known.token)
        except NotFound:
            agreed = None if known.is_being_deleted else known.agreed
            is_agreed = known.is_agreed and agreed is None
            return ObjectState(agreed, None, None, None, is_asked=True, is_agreed=is_agreed)
        if blob is None:
            return asked
        is_agreed = known.is_agreed and blob.token == known.token
        return ObjectState(
            known.agreed,
            blob.version,
            blob.token,
            blob_id(blob.data),
            blob.data,
            is_asked=True,
            is_agreed=is_agreed,
            origin=origin_in(blob.meta),
        )

    def write(
        self, path: WorkspacePath, data: bytes | None, state: ObjectState, by: Author | None
    ) -> ObjectState:
        if by is None:
            self._check_root_of_edits()
        row, stamp = self._outgoing.put(path, data, by, expect=state.token or ABSENT)
        if row is None:
            return ObjectState(state.agreed, None, None, None, is_asked=True, is_agreed=False)
        return ObjectState(
            state.agreed,
            row.version,
            row.token,
            row.object_id,
            data,
            is_asked=True,
            is_agreed=False,
            stamp=stamp,
        )

    def agree(self, path: WorkspacePath, state: ObjectState) -> None:
        """Record that both sides have this state now.

        The caller holds the writer lock. So whoever has changed the row meanwhile had an older state in
        mind, and this row replaces it.
        """
        row = None
        if state.version is not None and state.token is not None and state.object_id is not None:
            row = SyncedFile(state.version, state.object_id, state.token)
        if self._baseline.fact("root") is None:  # never synced as a whole
            root = self._workspace.identity()
            if root is not None:
                self._baseline.note("root", root, wait=False)
        for _ in range(ROUNDS_MAX):
            before = self._baseline.find(path)
            if before == row:
                break
            self._baseline.take([BaselineChange(path, before, row)], wait=False)

    def list(self) -> list[RemoteEntry]:
        self._get_ready()
        rows = self._baseline.tree()
        listed: list[RemoteEntry] = []
        for stat in self._there.list(len(rows)):
            if broken_rule(stat.name) is not None:
                continue
            path = WorkspacePath(stat.name)
            row = rows.get(path)
            is_known = row is not None and row.token == stat.token and not row.is_being_deleted
            listed.append(RemoteEntry(path, stat.size, row.version if row and is_known else None))
        return listed

    def problems(self) -> list[Problem]:
        """Return the files in the store that could not be brought here."""
        return self._baseline.problems()

    def close(self) -> None:
        self._baseline.close()

    @contextmanager
    def _reporting(self) -> Generator[SyncReport]:
        report = SyncReport()
        before = self._there.requests + self._history_sync.requests
        yield report
        report.requests = self._there.requests + self._history_sync.requests - before

    def _get_ready(self) -> None:
        if self._is_ready:
            return
        self._check()
        place = self._place()
        if self._baseline.fact("place") != place:
            self._baseline.begin_anew()
            self._baseline.note("place", place)
        self._surveyor.load_stat_cache()
        self._is_ready = True

    def _sync_all(
        self,
        report: SyncReport,
        on_progress: OnSyncProgress = lambda _done, _of: None,
        *,
        accept_deletions: bool = False,
        check: bool = False,
        read_head: bool = True,
    ) -> None:
        """Plan and apply everything, in several rounds if necessary. With `read_head` False, the caller
        has just read the head."""
        with self._alone():
            self._get_ready()
            self._history_sync.recover()
            self._check_late_writes()  # of replacements that a dead process left unchecked
            for _ in range(ROUNDS_MAX):
                with self._history_sync.theirs(report, read_head=read_head) as theirs:
                    listed_at = self._clock()
                    self._sync_files(theirs, report, on_progress, accept_deletions=accept_deletions)
                self._listed_at = listed_at
                if report.pending or self._history_sync.push(report):
                    break
                read_head = True
            if self._workspace.history.is_replaced:  # here, or by another machine
                touched = {*self._paths_to_erase(), *report.pushed, *report.merged, *report.pulled}
                self._baseline.note(_ERASED, json.dumps(sorted(touched)))
                self._erase_replaced(SYNC)
            self._history_sync.tidy(report, check=check)

    def _sync_files(
        self,
        theirs: History | None,
        report: SyncReport,
        on_progress: OnSyncProgress,
        *,
        accept_deletions: bool,
    ) -> None:
        """Survey and carry out the plan, until nothing is left to do."""
        for _ in range(ROUNDS_MAX):
            survey = self._survey(accept_deletions=accept_deletions)
            report.refused = list(survey.plan.refused)
            report.unsent = {path for path in survey.held if path in survey.here}
            self._baseline.keep_problems(report.refused)
            again = {
                *self._carry_out(survey, theirs, report, on_progress),
                *self._check_late_writes(),
            }
            report.pending = sorted(again)
            if not again:
                break
        self._baseline.keep_problems([*report.refused, *_history_problems(report.unfollowed)])

    def _send_dirty(self, report: SyncReport) -> None:
        dirty = self._surveyor.dirty()
        with self._history_sync.packing() if dirty else nullcontext():
            was_sent = self._try_send(dirty, report)
        if was_sent and (report.pending or self._history_sync.push(report)):
            return
        self._sync_all(report)

    def _try_send(self, paths: Iterable[WorkspacePath], report: SyncReport) -> bool:
        """Send each path with one conditional write. Return False if only a full sync with its checks is
        safe.

        That is so if a file was deleted, or if the directory is not the one of the last sync.
        """
        identity = self._workspace.identity()
        waiting = sorted(set(paths))
        for _ in range(ROUNDS_MAX):
            base = self._baseline.of_root(identity, waiting)
            if base is None:  # not the directory of the last sync
                return False
            here: dict[WorkspacePath, FileState] = {}
            read_cache = ReadCache()
            for path in waiting:
                local = self._surveyor.read(path)
                if local is not None:
                    here[path], data = local
                    read_cache.keep(path, data)
                elif base[path]:  # deleted here: only a full sync may delete there
                    return False
            actions = [
                Push(path, state.version, agreed.token if agreed else ABSENT)
                for path, state in here.items()
                if (agreed := base[path]) is None or agreed.version != state.version
            ]
            known = {path: agreed for path, agreed in base.items() if agreed is not None}
            with self._outbox.sending():
                waiting = self._outgoing.send(actions, known, here, read_cache, report)
            if not waiting:
                break
            for path in waiting:
                self.refresh(path)
        report.pending = list(waiting)
        return True

    def _has_listed_lately(self) -> bool:
        return self._listed_at is not None and self._clock() - self._listed_at < LISTED_EVERY_S

    def _survey(self, *, accept_deletions: bool) -> Survey:
        survey = self._surveyor.survey()
        if not accept_deletions and survey.plan.alarm is not None:
            raise MassDeletion(survey.plan.alarm.reason)
        identity = self._workspace.identity()
        if identity is None:
            raise MassDeletion(f"the directory {self._workspace.root} is missing or was replaced")
        if self._baseline.fact("root") != identity:
            self._check_root(survey, accept_deletions=accept_deletions)
            self._baseline.note("root", identity)
        return survey

    def _check_root_of_edits(self) -> None:
        """Check that what changed here changed in the directory that was synced last."""
        known = self._baseline.fact("root")
        if known is not None and known != self._workspace.identity():
            raise _wrong_directory(self._workspace)

    def _check_root(self, survey: Survey, *, accept_deletions: bool) -> None:
        """Check a directory that is not the one of the last sync.

        A directory with exactly the agreed files (a restored disk, a moved home) may replace it. For any
        other, a person must confirm.

        Raises: MassDeletion if the directory holds other files and the caller has not accepted
        deletions.
        """
        if not survey.base or accept_deletions:
            return
        here = {path: state.version for path, state in survey.here.items()}
        if here != {path: agreed.version for path, agreed in survey.base.items()}:
            raise _wrong_directory(self._workspace)

    def _carry_out(
        self,
        survey: Survey,
        history: History | None,
        report: SyncReport,
        on_progress: OnSyncProgress,
    ) -> list[WorkspacePath]:
        """Apply incoming changes, then send outgoing ones. Return the paths that must be planned again."""
        incoming: list[IncomingAction] = []
        outgoing: list[OutgoingAction] = []
        for action in survey.plan.actions:
            match action:
                case Pull() | PullDeletion() | Compare() | DropBaseline():
                    incoming.append(action)
                case Push() | PushDeletion():
                    outgoing.append(action)
                case _:
                    assert_never(action)
        progress = SyncProgress(on_progress, len(incoming) + len(outgoing))

        def theirs() -> Theirs | None:
            fetched = history() if history is not None else None
            return Theirs(*fetched, survey.held) if fetched is not None else None

        again = self._incoming.take(
            incoming, survey, report, progress.done, theirs if history is not None else None
        )
        with self._history_sync.packing() if outgoing else nullcontext():
            again += self._outgoing.send(
                outgoing, survey.base, survey.here, survey.read_cache, report, progress.done
            )
        return again

    def _check_late_writes(self) -> list[WorkspacePath]:
        """Check replaced files again, after a pause in which programs that had them open can write.
        Return the paths that such a write changed.

        Files that are replaced during this pause wait for the next check.
        """
        displaced = self._workspace.displaced()
        if not displaced:
            return []
        self._pause(SECOND_LOOK_S)
        return self._workspace.look_again(displaced)


def _scan_listing(there: BlobStore) -> ListFiles:
    def listing(_expected: int, on_request: Callable[[], None]) -> Iterator[Stat]:
        on_request()
        return there.scan()

    return listing


def _wrong_directory(workspace: Workspace) -> MassDeletion:
    return MassDeletion(
        f"{workspace.root} is not the directory of the last sync, and holds other files"
    )


def _history_problems(unfollowed: Failure | None) -> list[Problem]:
    return [] if unfollowed is None else [Problem(".history", "history", str(unfollowed))]
