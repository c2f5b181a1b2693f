"""Sync: the files here and the objects there become one, and nothing that anyone wrote is lost.

**The theory.** Two sides change without asking each other, and neither can be stopped: here an editor
saves at any moment, there other machines write. What both last agreed on stands in the `baseline`. From
it, from a scan of the tree and a listing of the store, `reconcile` decides for each path what is to be
done, and this file does it. Nothing is done to what was not looked at:

    there   a write or delete carries the token of the state it was decided on, and the store refuses it
            when that is not its state any more (`If-Match`, `If-None-Match: *`)
    here    a file is replaced by the verified swap (`swap`), which looks at what came out, twice

and what is looked at is first made a revision, so that every version that is replaced, here or there,
stays in the history; so is what both sides have come to by themselves, be it that a file is gone (0148). A
refusal of the store is no error. It means: plan again. And a save that a swap has overtaken is merged into
what came in.

**What makes it safe to die anywhere.** The baseline is written after the effect. Whoever dies in between
leaves both sides equal and a baseline that is behind; the next plan meets the path, reads both, finds
them the same and writes the row. There is no journal to replay, and none that could be wrong. A swap that
was interrupted leaves what came out aside under a label that says what it should be: it is looked at
before anything else. The same holds for an answer that was lost: whether the write happened is found out
by the next plan, as for anybody else's write.

**What makes it converge.** Both sides changed: the two are merged (`met`), what is there first, and the
merge is taken for a change made here on top of what is there: the swap puts it here, the row says that
*theirs* was agreed on, and it is pushed like every other change, under theirs' token. Another machine that
was faster makes that push fail; then its version is met in turn. Merges of the same two versions are the
same bytes whoever makes them, and conflict files have the same name.

**Order.** Revisions before pushes; notes before MEMORY.md; the row last.

Deliberately absent: clocks (no time of any kind decides anything; mtimes save hashing in `tree`, and a
stamp breaks the tie when both sides set one key of a front matter), locks on the store (conditions are
enough; but see `deletion`), and deletion on a suspicion: see `Alarm`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import assert_never

from workspaces.conditions import ABSENT
from workspaces.errors import Failure, MassDeletion, NotFound
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.storage.blobs import BlobStore, Stat
from workspaces.sync.baseline import Baseline, BaselineChange
from workspaces.sync.counted_store import CountedStore, ListFiles
from workspaces.sync.history_sync import FetchHistory as History
from workspaces.sync.history_sync import HistorySync
from workspaces.sync.incoming import FetchedFile, Incoming, IncomingAction
from workspaces.sync.outbox import Outbox
from workspaces.sync.outgoing import Going, Outgoing
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
from workspaces.workspace.workspace import Workspace

LISTED_EVERY_S = 60.0
"""Files without a history that tells of them (a machine died; a person wrote into the bucket) are found by
a listing, this often."""

ROUNDS_MAX = 10
"""How often a path that others keep changing is planned again before it is left to the next sync."""


class Sync:
    """One workspace and one store. Threads may share it; processes have each their own."""

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
    ) -> None:
        """`replication`: of the history, which follows the files. `clock`: seconds since anything.
        `place` names the store, once it can be asked: a baseline made with another one is not this
        one's. `check` refuses a store that cannot be relied on. `listing`: every object, under a good
        name or not. `alone` keeps others from syncing this tree at the same time; what they push all the
        same they say in the `outbox`."""
        self._workspace = workspace
        self._there = CountedStore(there, listing or _scanned(there))
        self._baseline = baseline
        self._place = place
        self._check = check
        self._alone = alone
        self._pause = pause
        crowd = ThreadPool(threads)
        self._sides = Surveyor(workspace, self._there, baseline, place=place, at_once=threads > 1)
        self._outbox = outbox or Outbox(None)
        self._incoming = Incoming(workspace, self._there, baseline, crowd, self._outbox)
        self._outgoing = Outgoing(workspace, self._there, baseline, crowd)
        self._past = HistorySync(workspace, baseline, replication, at_once=threads > 1)
        self._clock = clock
        self._is_ready = False
        self._listed_at: float | None = None

    def run(
        self,
        *,
        accept_deletions: bool = False,
        check: bool = False,
        tell: OnSyncProgress = lambda _done, _of: None,
    ) -> SyncReport:
        """Make both sides one. `check`: and make sure that all of the history is there. MassDeletion,
        before anything was done; Unavailable in the middle, and then what was done is done."""
        with self._reporting() as report:
            self._make_one(report, tell, accept_deletions=accept_deletions, check=check)
        return report

    def plan(self) -> SyncPlan:
        """What `run` would do now. What it would ask first is in the plan."""
        with self._alone():
            self._check()
            self._sides.remember()
            survey = self._sides.survey()
        if self._baseline.fact("place") == self._place():
            return survey.plan
        here = {path: state.version for path, state in survey.here.items()}
        anew = reconcile({}, here, survey.there, held=survey.held)
        return SyncPlan(anew.actions, (*survey.plan.refused, *anew.refused))

    def pull(self) -> SyncReport:
        """What others wrote comes here, and what was written here goes there. While their history says
        that there is nothing new this is one request; once in a while everything is looked at."""
        with self._reporting() as report:
            self._get_ready()
            is_recent = self._has_listed_lately() and not self._past.is_lost
            if is_recent and not self._past.has_moved(report):
                self._send_dirty(report)
            else:
                self._make_one(report, look=not is_recent)
        return report

    def push(self, paths: Iterable[WorkspacePath]) -> SyncReport:
        """What is known to be dirty goes out: one conditional write each, and no listing. The history
        follows later."""
        with self._reporting() as report:
            self._get_ready()
            if not self._has_sent(paths, report):
                self._make_one(report)
        return report

    def push_dirty(self) -> SyncReport:
        """What differs here from what was last agreed goes out, and the history after it; no listing."""
        with self._reporting() as report:
            self._get_ready()
            self._send_dirty(report)
        return report

    def refresh(self, path: WorkspacePath) -> None:
        """Bring what is there at one path."""
        with self._alone():
            self._get_ready()
            base = self._baseline.find(path)  # before what is there, which came after it
            try:
                blob = self._there.read(path)
            except NotFound:
                blob = None
            found = self._sides.read(path)
            token = blob.token if blob else None
            action = action_for(path, base, found[0].version if found else None, token)
            if isinstance(action, Pull | PullDeletion | Compare | DropBaseline):
                known = {} if base is None else {path: base}
                fetched = {} if blob is None else {path: FetchedFile(blob, base)}
                self._incoming.put([action], fetched, known, SyncReport())
            elif blob is None and base is not None:  # what is here is new there
                self._baseline.take([BaselineChange(path, base, None)], wait=False)

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        """Part of `Remote`: the condition is the store's."""
        self._get_ready()
        base = self._baseline.find(path)
        step = self._outgoing.put(path, data, base, expect=base.token if base else ABSENT)

        def agree() -> None:
            if self._baseline.fact("root") is None:  # never synced as a whole
                root = self._workspace.identity()
                if root is not None:
                    self._baseline.note("root", root, wait=False)
            self._baseline.take([step], wait=False)

        return agree

    def problems(self) -> list[Problem]:
        """What is there and could not be brought here."""
        return self._baseline.problems()

    def close(self) -> None:
        self._baseline.close()

    @contextmanager
    def _reporting(self) -> Generator[SyncReport]:
        report = SyncReport()
        before = self._there.requests + self._past.requests
        yield report
        report.requests = self._there.requests + self._past.requests - before

    def _get_ready(self) -> None:
        if self._is_ready:
            return
        self._check()
        place = self._place()
        if self._baseline.fact("place") != place:
            self._baseline.begin_anew()
            self._baseline.note("place", place)
        self._sides.remember()
        self._is_ready = True

    def _make_one(
        self,
        report: SyncReport,
        tell: OnSyncProgress = lambda _done, _of: None,
        *,
        accept_deletions: bool = False,
        check: bool = False,
        look: bool = True,
    ) -> None:
        """`look`: at the head first; else it has been looked at."""
        with self._alone():
            self._get_ready()
            self._past.recover()
            self._second_look()  # what somebody who died left aside
            for _ in range(ROUNDS_MAX):
                with self._past.theirs(report, look=look) as theirs:
                    listed_at = self._clock()
                    self._settle_files(theirs, report, tell, accept_deletions=accept_deletions)
                self._listed_at = listed_at
                if report.pending or self._past.push(report):
                    break
                look = True
            self._past.tidy(report, check=check)

    def _settle_files(
        self,
        theirs: History | None,
        report: SyncReport,
        tell: OnSyncProgress,
        *,
        accept_deletions: bool,
    ) -> None:
        """Look and carry out, until there is nothing left to do."""
        for _ in range(ROUNDS_MAX):
            survey = self._survey(accept_deletions=accept_deletions)
            report.refused = list(survey.plan.refused)
            report.unsent = {path for path in survey.held if path in survey.here}
            self._baseline.keep_problems(report.refused)
            again = {*self._carry_out(survey, theirs, report, tell), *self._second_look()}
            report.pending = sorted(again)
            if not again:
                break
        self._baseline.keep_problems([*report.refused, *_told(report.unfollowed)])

    def _send_dirty(self, report: SyncReport) -> None:
        dirty = self._sides.dirty()
        with self._past.packing() if dirty else nullcontext():
            has_sent = self._has_sent(dirty, report)
        if has_sent and (report.pending or self._past.push(report)):
            return
        self._make_one(report)

    def _has_sent(self, paths: Iterable[WorkspacePath], report: SyncReport) -> bool:
        """One conditional write each. False when only the long way is safe, past the guards: something
        was deleted, or the directory is not the one of the last sync."""
        identity = self._workspace.identity()
        waiting = sorted(set(paths))
        for _ in range(ROUNDS_MAX):
            base = self._baseline.of_root(identity, waiting)
            if base is None:
                return False
            here: dict[WorkspacePath, FileState] = {}
            in_hand = ReadCache()
            for path in waiting:
                found = self._sides.read(path)
                if found is not None:
                    here[path], data = found
                    in_hand.keep(path, data)
                elif base[path]:
                    return False
            actions = [
                Push(path, state.version, agreed.token if agreed else ABSENT)
                for path, state in here.items()
                if (agreed := base[path]) is None or agreed.version != state.version
            ]
            known = {path: agreed for path, agreed in base.items() if agreed is not None}
            with self._outbox.sending():
                waiting = self._outgoing.send(actions, known, here, in_hand, report)
            if not waiting:
                break
            for path in waiting:
                self.refresh(path)
        report.pending = list(waiting)
        return True

    def _has_listed_lately(self) -> bool:
        return self._listed_at is not None and self._clock() - self._listed_at < LISTED_EVERY_S

    def _survey(self, *, accept_deletions: bool) -> Survey:
        survey = self._sides.survey()
        if not accept_deletions and survey.plan.alarm is not None:
            raise MassDeletion(survey.plan.alarm.reason)
        identity = self._workspace.identity()
        if identity is None:
            raise MassDeletion(f"the directory {self._workspace.root} is missing or was replaced")
        if self._baseline.fact("root") != identity:
            self._ask_about_the_root(survey, accept_deletions=accept_deletions)
            self._baseline.note("root", identity)
        return survey

    def _ask_about_the_root(self, survey: Survey, *, accept_deletions: bool) -> None:
        """Another directory than the one that was agreed about. One that holds exactly what was agreed
        on (a restored disk, a moved home) can stand for it; with any other a person must say so."""
        if not survey.base or accept_deletions:
            return
        here = {path: state.version for path, state in survey.here.items()}
        if here != {path: agreed.version for path, agreed in survey.base.items()}:
            raise MassDeletion(
                f"{self._workspace.root} is not the directory of the last sync, and holds other files"
            )

    def _carry_out(
        self, survey: Survey, history: History | None, report: SyncReport, tell: OnSyncProgress
    ) -> list[WorkspacePath]:
        """What comes in, then what goes out. Returns what must be planned again."""
        coming: list[IncomingAction] = []
        going: list[Going] = []
        for action in survey.plan.actions:
            match action:
                case Pull() | PullDeletion() | Compare() | DropBaseline():
                    coming.append(action)
                case Push() | PushDeletion():
                    going.append(action)
                case _:
                    assert_never(action)
        progress = SyncProgress(tell, len(coming) + len(going))

        def theirs() -> Theirs | None:
            fetched = history() if history is not None else None
            return Theirs(*fetched, survey.held) if fetched is not None else None

        again = self._incoming.take(
            coming, survey, report, progress.done, theirs if history is not None else None
        )
        with self._past.packing() if going else nullcontext():
            again += self._outgoing.send(
                going, survey.base, survey.here, survey.in_hand, report, progress.done
            )
        return again

    def _second_look(self) -> list[WorkspacePath]:
        """At what swaps have displaced, once those who had it open had the time to write. What is displaced
        while others are given theirs waits for the next look."""
        displaced = self._workspace.displaced()
        if not displaced:
            return []
        self._pause(SECOND_LOOK_S)
        return self._workspace.look_again(displaced)


def _scanned(there: BlobStore) -> ListFiles:
    def listing(known: Sequence[str], asked: Callable[[], None]) -> Iterator[Stat]:
        del known
        asked()
        return there.scan()

    return listing


def _told(unfollowed: Failure | None) -> list[Problem]:
    return [] if unfollowed is None else [Problem(".history", "history", str(unfollowed))]
