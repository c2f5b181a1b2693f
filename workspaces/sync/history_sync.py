"""What became of the history in a sync: followed with the files, packed with them, told after them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from workspaces.errors import Deleted, Failure
from workspaces.history.git.objects import ObjectId
from workspaces.history.git.quarantine import Quarantine
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.sync.baseline import Baseline
from workspaces.sync.history_head import HistoryHead
from workspaces.sync.replication import Replication
from workspaces.sync.report import SyncReport
from workspaces.workspace.workspace import Workspace

S = TypeVar("S")
T = TypeVar("T")

FetchedHistory = tuple[RevisionId, Quarantine]
"""What others have come to, and the bundles that lead there."""

FetchHistory = Callable[[], FetchedHistory | None]
"""Waits for it. None where it cannot be used, which is told."""


class HistorySync:
    """What is wrong with the history in S3 stops no file: it is told."""

    def __init__(
        self,
        workspace: Workspace,
        baseline: Baseline,
        replication: Replication | None,
        *,
        at_once: bool,
    ) -> None:
        """`replication` None: the history stays here. `at_once`: theirs is fetched and looked at while the
        caller looks at the files."""
        self._workspace = workspace
        self._baseline = baseline
        self._replication = replication
        self._at_once = at_once

    @property
    def requests(self) -> int:
        return self._replication.requests if self._replication else 0

    @property
    def is_lost(self) -> bool:
        return not self._workspace.history.is_there

    def recover(self) -> None:
        """What was lost here. Unavailable when it is not there either."""
        if self.is_lost and self._replication is not None:
            self._replication.recover()

    def has_moved(self, report: SyncReport) -> bool:
        """Whether others say that there is something new; while they cannot be asked, there may be."""
        if self._replication is None:
            return True
        try:
            return self._replication.has_moved()
        except Deleted:
            raise
        except Failure as failure:
            report.unfollowed = failure
            return True

    @contextmanager
    def theirs(self, report: SyncReport, *, look: bool = True) -> Generator[FetchHistory | None]:
        """None: there is nothing new. The head is looked at before this returns, and so before the files
        are listed."""
        report.unfollowed = None
        head: HistoryHead | None = None
        if self._replication is not None:
            try:
                head = self._replication.news(look=look)
            except Deleted:
                raise
            except Failure as failure:
                report.unfollowed = failure
        if self._replication is None or head is None or head.tip is None:
            yield None
            return
        with ThreadPoolExecutor(1) as pool:
            begin = pool.submit if self._at_once else _done
            fetching = begin(self._replication.fetch, head)
            try:
                yield partial(_fetched, head.tip, fetching, report)
            finally:
                if fetching.exception() is None:
                    fetching.result().close()

    @contextmanager
    def packing(self) -> Generator[None]:
        """What is lacking there goes while the files do. When that fails `push` does it again, and tells."""
        tip = self._workspace.tip()
        if self._replication is None or tip is None:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            begin = pool.submit if self._at_once else _done
            packing = begin(self._replication.pack, tip)
            yield
            with suppress(Failure):
                packing.result()

    def push(self, report: SyncReport) -> bool:
        """After the files. False when others have been faster: theirs is to be followed first."""
        if self._replication is None or report.unfollowed is not None:
            return True
        tip = self._workspace.tip()
        if tip is None:
            report.history = True
            return True
        try:
            missing = self._missing(tip)
            if missing:
                # A revision of what came and went between two syncs: that it went is one too.
                self._workspace.committed(missing)
                tip = self._workspace.tip() or tip
                missing = self._missing(tip)
            if missing:
                return True
            report.history = self._replication.push(tip)
        except Deleted:
            raise
        except Failure as failure:
            report.unfollowed = failure
            return True
        return report.history

    def tidy(self, report: SyncReport, *, check: bool) -> None:
        """Housekeeping in S3: when it is due, or asked for."""
        if self._replication is None or not report.history:
            return
        try:
            self._replication.fold()
            if check or self._replication.is_check_due():
                report.mended = self._replication.check()
        except Failure as failure:
            report.unfollowed = failure

    def _missing(self, tip: RevisionId) -> dict[WorkspacePath, ObjectId | None]:
        """Files of a revision that are not there as they are in it, and what is there instead: somebody
        who followed it would miss them."""
        history = self._workspace.history
        seen = self._replication.seen() if self._replication else None
        known = seen if seen and history.has(seen) else None
        changed = history.differences(known, tip)
        agreed = self._baseline.among(changed)
        there = {path: one.object_id if (one := agreed(path)) else None for path in changed}
        return {path: there[path] for path, (_, here) in changed.items() if there[path] != here}


def _done(do: Callable[[S], T], asked: S) -> Future[T]:
    """In the caller's thread."""
    done: Future[T] = Future()
    try:
        done.set_result(do(asked))
    except Failure as failure:
        done.set_exception(failure)
    return done


def _fetched(
    tip: RevisionId, fetching: Future[Quarantine], report: SyncReport
) -> FetchedHistory | None:
    try:
        return tip, fetching.result()
    except Deleted:  # of what is over no file is touched
        raise
    except Failure as failure:
        report.unfollowed = failure
        return None
