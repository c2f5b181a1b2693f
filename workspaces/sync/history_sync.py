"""Sync the history beside the files: fetch it with them, pack it with them, and publish its head after
them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from workspaces.errors import Deleted, Failure
from workspaces.history.git.objects import ObjectId
from workspaces.history.git.quarantine import Quarantine
from workspaces.history.git.rewrite import RewrittenHistory
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
"""The newest revision of the other machines, and a quarantine with the bundles that lead to it."""

FetchHistory = Callable[[], FetchedHistory | None]
"""Blocks until the history is fetched. Returns None if it is unusable; the reason is in
`report.unfollowed`."""


class HistorySync:
    """The part of a sync that handles the history. A broken history in S3 stops no file; the report
    names the problem."""

    def __init__(
        self,
        workspace: Workspace,
        baseline: Baseline,
        replication: Replication | None,
        *,
        is_parallel: bool,
    ) -> None:
        """Attach the history of a workspace. With `replication` None, the history stays on this machine.

        With `is_parallel`, their history is fetched and checked while the caller handles the files.
        """
        self._workspace = workspace
        self._baseline = baseline
        self._replication = replication
        self._is_parallel = is_parallel

    @property
    def requests(self) -> int:
        return self._replication.requests if self._replication else 0

    @property
    def is_lost(self) -> bool:
        return not self._workspace.history.is_there

    def recover(self) -> None:
        """Restore a history that was lost here.

        Raises: Unavailable if it is not in S3 either.
        """
        if self.is_lost and self._replication is not None:
            self._replication.recover()

    def has_moved(self, report: SyncReport) -> bool:
        """Return True if other machines have published something new, or if the head cannot be read."""
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
    def theirs(
        self, report: SyncReport, *, read_head: bool = True
    ) -> Generator[FetchHistory | None]:
        """Yield a function that waits for their new history, or None if there is nothing new.

        The head is read before this yields, and so before the caller lists the files.
        """
        report.unfollowed = None
        head: HistoryHead | None = None
        if self._replication is not None:
            try:
                head = self._replication.new_head(read_head=read_head)
            except Deleted:
                raise
            except Failure as failure:
                report.unfollowed = failure
        if self._replication is None or head is None or head.tip is None:
            yield None
            return
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit if self._is_parallel else _run_now
            fetching = start(self._replication.fetch, head)
            try:
                yield partial(_wait_for_fetch, head.tip, fetching, report)
            finally:
                if fetching.exception() is None:
                    fetching.result().close()

    @contextmanager
    def packing(self) -> Generator[None]:
        """Upload the missing packs while the caller uploads the files. If that fails, `push` repeats it
        and reports the failure."""
        tip = self._workspace.history.tip()
        if self._replication is None or tip is None:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit if self._is_parallel else _run_now
            packing = start(self._replication.pack, tip)
            yield
            with suppress(Failure):
                packing.result()

    def push(self, report: SyncReport) -> bool:
        """Publish the newest revision, once its files are in the store.

        Return False if other machines were faster, and their history must be followed first.
        """
        if self._replication is None or report.unfollowed is not None:
            return True
        tip = self._workspace.history.tip()
        if tip is None:
            report.history = True
            return True
        try:
            unsent = self._unsent_files(tip)
            if unsent:
                # The revision has a file that came and went between two syncs: commit its deletion.
                self._workspace.edits.committed(unsent)
                tip = self._workspace.history.tip() or tip
                unsent = self._unsent_files(tip)
            if unsent:  # some files are not in the store yet: do not publish the revision
                return True
            report.history = self._replication.push(tip)
        except Deleted:
            raise
        except Failure as failure:
            report.unfollowed = failure
            return True
        return report.history

    def replace(self, rewritten: RewrittenHistory, *, instead_of: RevisionId) -> bool:
        """Publish a rewritten history. See `Replication.replace`. Without replication there is nothing to
        publish."""
        if self._replication is None:
            return True
        return self._replication.replace(rewritten, instead_of=instead_of)

    def erase_replaced(self) -> None:
        """Delete the packs of a history that was replaced."""
        if self._replication is not None:
            self._replication.erase_replaced()

    def tidy(self, report: SyncReport, *, check: bool) -> None:
        """Do housekeeping in S3 when it is due, or when the caller wants a check."""
        if self._replication is None or not report.history:
            return
        try:
            self._replication.fold()
            if check or self._replication.is_check_due():
                report.mended = self._replication.check()
        except Failure as failure:
            report.unfollowed = failure

    def _unsent_files(self, tip: RevisionId) -> dict[WorkspacePath, ObjectId | None]:
        """Return the files of a revision that the store holds in another state, with that state. A
        machine that followed the revision would miss them."""
        history = self._workspace.history
        seen = self._replication.seen() if self._replication else None
        known = seen if seen and history.has(seen) else None
        changed = history.differences(known, tip)
        agreed = self._baseline.among(changed)
        there = {path: row.object_id if (row := agreed(path)) else None for path in changed}
        return {path: there[path] for path, (_, here) in changed.items() if there[path] != here}


def _run_now(do: Callable[[S], T], argument: S) -> Future[T]:
    """Run the function in the caller's thread, and return a finished future."""
    future: Future[T] = Future()
    try:
        future.set_result(do(argument))
    except Failure as failure:
        future.set_exception(failure)
    return future


def _wait_for_fetch(
    tip: RevisionId, fetching: Future[Quarantine], report: SyncReport
) -> FetchedHistory | None:
    try:
        return tip, fetching.result()
    except Deleted:  # this life of the workspace is over: no file may change
        raise
    except Failure as failure:
        report.unfollowed = failure
        return None
