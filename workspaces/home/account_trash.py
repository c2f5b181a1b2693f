"""The trash of one account: its deleted workspaces are listed, come back, or go for good.

A deleted workspace comes back as a new one, with its files and its history: its old id may be deleted on
other machines too, and a deletion is never taken back.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from workspaces.clock import Clock
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.home.deletion_hold import deleting
from workspaces.home.layout import Home
from workspaces.home.trash import FILES, HISTORY, TrashEntry, trash_entries
from workspaces.home.workspaces import Workspaces
from workspaces.ids import AccountId, Namespace, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.storage.records import JsonObject
from workspaces.workspace_record import WorkspaceRecord

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
            "bytes": _size_of(self.entry.place),
            "unpushed": list(self.entry.unpushed),
        }


class AccountTrash:
    """The trash of one account."""

    def __init__(
        self, account_id: AccountId, home: Home, workspaces: Workspaces, clock: Clock
    ) -> None:
        self._account_id = account_id
        self._home = home
        self._workspaces = workspaces
        self._clock = clock

    def list(self) -> list[TrashedWorkspace]:
        """Return the deleted workspaces of the account, oldest first."""
        return [
            trashed
            for trashed in _all(self._home)
            if trashed.name.endswith(f"-{namespace(self._account_id, trashed.entry.id)}")
        ]

    def find(self, reference: str) -> TrashedWorkspace:
        """Return the newest deleted workspace with this name, id or directory.

        Raises: NotFound.
        """
        for trashed in reversed(self.list()):
            place = trashed.entry.place
            if reference in (trashed.entry.name, trashed.entry.id, place.name, str(place)):
                return trashed
        raise NotFound(
            "workspace in the trash", reference, remedy="`harness trash list` lists them"
        )

    def restore(self, reference: str, *, name: str | None = None) -> WorkspaceRecord:
        """Make a new workspace of a deleted one, by default under its old name, and return its record.

        Raises: NotFound. AlreadyExists if a workspace has the name. Busy while a backup runs.
        """
        entry = self.find(reference).entry
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

    def empty(self, *, older_than: timedelta = timedelta(0)) -> list[TrashedWorkspace]:
        """Remove the deleted workspaces of the account that were deleted so long ago. Return them.

        Raises: Busy while a backup runs. Unavailable if a file cannot be removed.
        """
        before = self._clock.now() - older_than
        gone = [trashed for trashed in self.list() if trashed.at <= before]
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


def _size_of(place: Path) -> int:
    return sum(file.lstat().st_size for file in place.rglob("*") if file.is_file())
