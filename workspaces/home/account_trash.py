"""The trash of one account: its deleted workspaces are listed, come back, or go for good.

A deleted workspace comes back as a new one, with its files and its history: its old id may be deleted on
other machines too, and a deletion is never taken back.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Refused, Unavailable
from workspaces.home.deletion_hold import deleting
from workspaces.home.layout import Home
from workspaces.home.trash import FILES, HISTORY, TrashEntry, trash_entries
from workspaces.home.workspaces import Workspaces, is_of_another_user
from workspaces.ids import Namespace, WorkspaceId, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.storage.records import JsonObject
from workspaces.workspace_record import WorkspaceRecord

_REMEDY = "`harness trash list` lists them"
_STAMP = "%Y-%m-%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class TrashedWorkspace:
    """A deleted workspace of an account."""

    entry: TrashEntry
    at: datetime
    """When it was deleted."""

    @property
    def name(self) -> str:
        """The name of its directory, which is unique."""
        return self.entry.place.name

    def as_json(self) -> JsonObject:
        return {
            "place": str(self.entry.place),
            "id": self.entry.id,
            "name": self.entry.name,
            "why": self.entry.why,
            "at": self.at.isoformat().replace("+00:00", "Z"),
            "bytes": self.size().bytes,
            "unpushed": list(self.entry.unpushed),
        }

    def size(self) -> TrashSize:
        """Return the size of the directory. A file that goes meanwhile is not counted."""
        files = size = 0
        kept = self.entry.files
        for directory, _, names in os.walk(self.entry.place):
            files += len(names) if Path(directory).is_relative_to(kept) else 0
            for name in names:
                with suppress(OSError):
                    size += Path(directory, name).lstat().st_size
        return TrashSize(files, size)


class TrashSize(NamedTuple):
    files: int
    """Files of the workspace itself."""
    bytes: int
    """Bytes of the files and the history."""


class AccountTrash:
    """The trash of one account."""

    def __init__(
        self, principal: Principal, home: Home, workspaces: Workspaces, clock: Clock
    ) -> None:
        self._principal = principal
        self._home = home
        self._workspaces = workspaces
        self._clock = clock

    def list(self) -> list[TrashedWorkspace]:
        """Return the deleted workspaces of the account, oldest first."""
        return [
            trashed
            for trashed in _all(self._home)
            if trashed.name.endswith(f"-{namespace(self._principal.account_id, trashed.entry.id)}")
        ]

    def get(self, name: str) -> TrashedWorkspace:
        """Return the deleted workspace whose directory has this name.

        Raises: NotFound.
        """
        for trashed in self.list():
            if trashed.name == name:
                return trashed
        raise NotFound("workspace in the trash", name, remedy=_REMEDY)

    def older_than(self, age: timedelta) -> list[TrashedWorkspace]:
        """Return the workspaces that were deleted so long ago, oldest first."""
        before = self._clock.now() - age
        return [trashed for trashed in self.list() if trashed.at <= before]

    def find(self, reference: str) -> TrashedWorkspace:
        """Return the newest deleted workspace with this name, id or directory.

        Raises: NotFound.
        """
        for trashed in reversed(self.list()):
            place = trashed.entry.place
            if reference in (trashed.entry.name, trashed.entry.id, place.name, str(place)):
                return trashed
        raise NotFound("workspace in the trash", reference, remedy=_REMEDY)

    def is_readable(self, trashed: TrashedWorkspace) -> bool:
        """Return True unless the workspace was private to another user: then its files are nobody else's."""
        return not is_of_another_user(WorkspaceId(trashed.entry.id), self._principal.user_id)

    def restore(self, reference: str, *, name: str | None = None) -> WorkspaceRecord:
        """Make a new workspace of a deleted one, by default under its old name, and return its record.

        Raises: NotFound. Refused if it was private to another user. AlreadyExists if a workspace has the
        name. Busy while a backup runs.
        """
        trashed = self.find(reference)
        if not self.is_readable(trashed):
            raise Refused(
                "workspace",
                trashed.entry.name,
                "was private to another user, so it can be removed and not restored",
            )
        entry = trashed.entry
        brought: list[Namespace] = []

        def bring(new: Namespace) -> None:
            brought.append(new)
            self._move(entry.place, new)

        with deleting(self._home):
            try:
                record = self._workspaces.create_around(name or entry.name, bring)
            except Failure:
                for new in brought:  # nothing may be left where no record leads to
                    self._move(entry.place, new, is_back=True)
                raise
            _remove(entry.place)
        return record

    def remove(self, name: str) -> TrashedWorkspace:
        """Remove the deleted workspace whose directory has this name for good, and return it.

        Raises: NotFound. Busy while a backup runs. Unavailable if a file cannot be removed.
        """
        trashed = self.get(name)
        with deleting(self._home):
            _remove(trashed.entry.place)
        return trashed

    def empty(self, *, older_than: timedelta = timedelta(0)) -> list[TrashedWorkspace]:
        """Remove the deleted workspaces of the account that were deleted so long ago. Return them.

        Raises: Busy while a backup runs. Unavailable if a file cannot be removed.
        """
        gone = self.older_than(older_than)
        with deleting(self._home):
            for trashed in gone:
                _remove(trashed.entry.place)
        return gone

    def _move(self, place: Path, name: Namespace, *, is_back: bool = False) -> None:
        """Move files and history out of the trash, or back to it."""
        live = (self._home.tree(name), self._home.history(name))
        try:
            for trashed, target in zip((place / FILES, place / HISTORY), live, strict=True):
                source, to = (target, trashed) if is_back else (trashed, target)
                if source.exists():
                    source.rename(to)
        except OSError as error:
            raise as_failure(error, str(place)) from error


def empty_old(home: Home, before: datetime) -> list[TrashedWorkspace]:
    """Remove what was deleted before a time, in all accounts of a home. Return it.

    A workspace with changes that never reached another machine stays until a person removes it.

    Raises: Busy while a backup runs. Unavailable if a file cannot be removed.
    """
    gone = [one for one in _all(home) if one.at < before and not one.entry.unpushed]
    if gone:
        with deleting(home):
            for trashed in gone:
                _remove(trashed.entry.place)
    return gone


def _all(home: Home) -> list[TrashedWorkspace]:
    found: list[TrashedWorkspace] = []
    for entry in trash_entries(home):
        try:
            stamp = entry.place.name[: -len(entry.place.name.rpartition("-fs-")[2]) - len("-fs-")]
            at = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
        except ValueError:  # a directory that a person has renamed
            at = datetime.fromtimestamp(entry.place.stat().st_mtime, UTC)
        found.append(TrashedWorkspace(entry, at))
    return found


def _remove(place: Path) -> None:
    """Remove a directory of the trash. The note goes last, so that an interrupted removal can be repeated."""
    try:
        for part in (FILES, HISTORY):
            with suppress(FileNotFoundError):
                shutil.rmtree(place / part)
        with suppress(FileNotFoundError):
            shutil.rmtree(place)
    except OSError as error:
        raise Unavailable(str(place), error.strerror or str(error)) from error
