"""Disposal: moves the local files of a deleted workspace to the trash. After an interruption it continues.

It writes the note first, then deletes the record, then moves the files. So if files are still in place
after that, the note tells that they are on their way to the trash. During a disposal no process syncs the
tree or writes to it. It is refused while a backup runs.
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
from workspaces.home.cards import remove_card
from workspaces.home.deletion_hold import deleting
from workspaces.home.layout import Home
from workspaces.home.trash import (
    TrashEntry,
    Why,
    begin_disposal,
    finish_disposal,
    is_in_trash,
    trash_entries,
    unfinished_disposals,
)
from workspaces.ids import AccountId, Namespace, WorkspaceId, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.localfs.sqlite_file import remove
from workspaces.timestamp import stamp_of
from workspaces.validation import parse
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord


class Disposal:
    """The disposal of workspaces of one account."""

    def __init__(
        self,
        account_id: AccountId,
        home: Home,
        catalog: Catalog[WorkspaceRecord],
        clock: Clock,
        *,
        open_workspace: Callable[[WorkspaceRecord], Workspace],
        release: Callable[[WorkspaceId], None],
    ) -> None:
        self._account_id = account_id
        self._home = home
        self._catalog = catalog
        self._clock = clock
        self._open = open_workspace
        self._release = release

    def move_to_trash(
        self, workspace_id: WorkspaceId, *, why: Why, name: str = ""
    ) -> TrashEntry | None:
        """Move the local files of a deleted workspace to the trash, also those that were never pushed.

        `name` is the name of the workspace, for the case that its record no longer exists. Return None if
        there are no local files.
        """
        storage_name = self._namespace(workspace_id)
        try:
            record = self._catalog.get(workspace_id)
        except NotFound:
            if is_in_trash(self._home, storage_name):  # nothing is left to move
                return None
            record = _placeholder_record(workspace_id, name or workspace_id)
        else:
            return self.of_record(record, why)
        unfinished = unfinished_disposals(self._home, storage_name)
        if unfinished is None:  # the record is gone, and no disposal was begun
            return self.of_record(record, why)
        with (
            deleting(self._home),
            self._sync_lock(storage_name),
            WriterLock(self._home.lock(storage_name)).hold("a deletion"),
        ):
            self._clear(workspace_id, unfinished)
        return next((one for one in trash_entries(self._home) if one.place == unfinished), None)

    def of_record(self, record: WorkspaceRecord, why: Why) -> TrashEntry:
        """Dispose of a workspace whose record and files are both on this machine."""
        name = self._namespace(record.id)
        stamp = stamp_of(self._clock.now())
        unpushed = self._unpushed(record) if record.is_shared and why != "here" else ()
        entry = TrashEntry(self._home.trash(name, stamp), record.id, record.name, why, unpushed)
        with (
            deleting(self._home),
            self._sync_lock(name),
            WriterLock(self._home.lock(name)).hold("a deletion"),
        ):
            begin_disposal(self._home, name, entry)
            with suppress(NotFound):  # another machine with the same records was faster
                self._catalog.delete(record.id)
            self._clear(record.id, entry.place)
        return entry

    def _clear(self, workspace_id: WorkspaceId, place: Path) -> None:
        """Remove the databases of a workspace, and move its files and history to the trash."""
        name = self._namespace(workspace_id)
        self._release(workspace_id)
        remove_card(self._home, name)
        try:  # before the history: a baseline without a history would mean that the history was lost
            search = self._home.search(name)
            for database in (search, search.with_suffix(".view.db"), self._home.sync(name)):
                remove(database)
        except OSError as error:
            raise as_failure(error, str(place)) from error
        finish_disposal(self._home, name, place)

    def _unpushed(self, record: WorkspaceRecord) -> tuple[str, ...]:
        """Return the local files that were never synced. Manual edits are committed first, if possible."""
        from workspaces.home.unpushed import unpushed_files

        try:
            workspace = self._open(record)
        except Unavailable:  # its files are no longer on this machine
            return ()
        with suppress(Failure):
            workspace.edits.commit()
        return unpushed_files(self._home, workspace)

    def _sync_lock(self, name: Namespace) -> AbstractContextManager[object]:
        """Return a context in which no other process syncs the tree."""
        return WriterLock(self._home.sync_lock(name)).hold("a deletion")

    def _namespace(self, workspace_id: WorkspaceId) -> Namespace:
        return namespace(self._account_id, workspace_id)


def _placeholder_record(workspace_id: WorkspaceId, name: str) -> WorkspaceRecord:
    """Return a record for a workspace whose record is gone, to read its files once more."""
    epoch = stamp_of(datetime.fromtimestamp(0, UTC))
    fields = {"id": workspace_id, "name": name, "createdAt": epoch, "updatedAt": epoch}
    return parse(WorkspaceRecord, {**fields, "config": {"storage": {"provider": "s3"}}})
