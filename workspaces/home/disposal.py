"""Burials: what is here of a workspace whose life is over goes to the trash, all of it or, after an
interruption, what is left.

The note first, then the record, then the files: what is found where it was after that is known to be on its
way. Meanwhile nobody syncs the tree and nobody writes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

from workspaces.accounts.record_catalog import Catalog
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.home.layout import Home
from workspaces.home.trash import (
    TrashEntry,
    Why,
    begin_disposal,
    finish_disposal,
    is_in_trash,
    lying,
    unfinished_disposals,
)
from workspaces.ids import AccountId, Namespace, WorkspaceId, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.localfs.sqlite_file import remove
from workspaces.sync.baseline import Baseline
from workspaces.timestamp import stamp_of
from workspaces.validation import parse
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord


class Disposal:
    """For the workspaces of one account."""

    def __init__(
        self,
        account_id: AccountId,
        home: Home,
        catalog: Catalog[WorkspaceRecord],
        clock: Clock,
        *,
        opened: Callable[[WorkspaceRecord], Workspace],
        let_go: Callable[[WorkspaceId], None],
    ) -> None:
        self._account_id = account_id
        self._home = home
        self._catalog = catalog
        self._clock = clock
        self._open = opened
        self._let_go = let_go

    def of(self, workspace_id: WorkspaceId, *, why: Why, name: str = "") -> TrashEntry | None:
        """What is here of a life that is over goes to the trash, with what was never pushed. None when
        nothing is here. `name`: what it was called, where its record is gone already."""
        whose = self._namespace(workspace_id)
        try:
            record = self._catalog.get(workspace_id)
        except NotFound:
            if is_in_trash(self._home, whose):
                return None
            record = _stand_in(workspace_id, name or workspace_id)
        else:
            return self.of_record(record, why)
        begun = unfinished_disposals(self._home, whose)
        if begun is None:
            return self.of_record(record, why)
        with self._alone(whose), WriterLock(self._home.lock(whose)).hold("a deletion"):
            self._clear(workspace_id, begun)
        return next((one for one in lying(self._home) if one.place == begun), None)

    def of_record(self, record: WorkspaceRecord, why: Why) -> TrashEntry:
        """It is here, and its record."""
        name = self._namespace(record.id)
        stamp = stamp_of(self._clock.now())
        unpushed = self._unpushed(record) if record.is_shared and why != "here" else ()
        buried = TrashEntry(self._home.trash(name, stamp), record.id, record.name, why, unpushed)
        with self._alone(name), WriterLock(self._home.lock(name)).hold("a deletion"):
            begin_disposal(self._home, name, buried)
            with suppress(NotFound):  # another machine with the same records was faster
                self._catalog.delete(record.id)
            self._clear(record.id, buried.place)
        return buried

    def _clear(self, workspace_id: WorkspaceId, place: Path) -> None:
        """Nothing of a workspace stays where it was."""
        name = self._namespace(workspace_id)
        self._let_go(workspace_id)
        try:  # before the history: without it, a baseline would say that it was lost
            search = self._home.search(name)
            for database in (search, search.with_suffix(".view.db"), self._home.sync(name)):
                remove(database)
        except OSError as error:
            raise as_failure(error, str(place)) from error
        finish_disposal(self._home, name, place)

    def _unpushed(self, record: WorkspaceRecord) -> tuple[str, ...]:
        """What is here and was never agreed on. What is edited becomes a revision, if it can."""
        try:
            workspace = self._open(record)
        except Unavailable:  # its files are not here any more
            return ()
        with suppress(Failure):
            workspace.commit_edits()
        baseline = Baseline(self._home.sync(workspace.namespace))
        try:
            agreed = baseline.tree()
        finally:
            baseline.close()
        found = workspace.scan().files
        return tuple(
            path
            for path, state in sorted(found.items())
            if (known := agreed.get(path)) is None or known.version != state.version
        )

    def _alone(self, name: Namespace) -> AbstractContextManager[object]:
        """While nobody syncs its tree."""
        return WriterLock(self._home.sync_lock(name)).hold("a deletion")

    def _namespace(self, workspace_id: WorkspaceId) -> Namespace:
        return namespace(self._account_id, workspace_id)


def _stand_in(workspace_id: WorkspaceId, name: str) -> WorkspaceRecord:
    """For a workspace whose record is gone, to look at its files once more."""
    once = stamp_of(datetime.fromtimestamp(0, UTC))
    stated = {"id": workspace_id, "name": name, "createdAt": once, "updatedAt": once}
    return parse(WorkspaceRecord, {**stated, "config": {"storage": {"provider": "s3"}}})
