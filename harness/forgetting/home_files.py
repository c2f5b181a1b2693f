"""Find and replace phrases in the files of a home that are neither records nor workspaces.

    trash                files of deleted workspaces, and their histories
    temporary files      what a killed process left; what was staged for a workspace goes as a whole, and so
                         does the copy of the records that a killed backup left
    local files          settings, templates, cards, changes to other programs' configurations
    local conversations  a cache of titles, which goes as a whole

A file is replaced by renaming another into its place, so a reader sees the old file or the new one.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.forgetting.found import Findings, FoundPlace
from harness.forgetting.record_places import Where
from harness.forgetting.redaction import TextFinder, redact_bytes
from harness.forgetting.workspace_search import files_below, find_in_trashed_history
from workspaces.errors import Unavailable
from workspaces.home.deletion_hold import deleting
from workspaces.home.layout import Home
from workspaces.home.trash import trash_entries
from workspaces.ids import AccountId, Namespace, namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.localfs.staging import STAGED_PREFIX
from workspaces.tree.port import LABEL_PREFIX

FILE_BYTES_MAX = 64 * 2**20
"""The largest file that is read. Nothing of this program is larger, except a copy of the records."""

_DAMAGED = ".damaged-"
_GONE = "history.gone"
"""A history of the trash that is being removed. A killed process leaves it."""

_DRAFT = ".forget-"
"""What a file is replaced by. A killed process leaves it."""

_CACHES = ("local-conversations.json",)


@dataclass(frozen=True, slots=True)
class HomeFiles:
    """The other files of a home."""

    home: Home
    finder: TextFinder
    account_id: AccountId
    namespaces: frozenset[Namespace]
    """Those of the account's workspaces."""
    is_default: bool
    """True for the account that the home first had. Settings, templates and the like are its own."""
    state: Path | None
    """The SQLite file of the records, if they are on this machine."""

    def find(self, findings: Findings) -> None:
        for where, file in self._files():
            count = redact_bytes(_read(file), self.finder)[1]
            findings.add(FoundPlace(where, path=self._name(file)), count)
        for directory in self._trashed_histories():
            self._find_in_history(directory, findings)
        self._beyond_reach(findings)

    def rewrite(self, findings: Findings) -> None:
        """Replace the phrases. A history in the trash that holds one is removed, with nothing else of it.

        Raises: Busy while a backup runs, which has a copy of the records.
        """
        self._remove_leftovers()
        for where, file in self._files():
            data, count = redact_bytes(_read(file), self.finder)
            findings.add(FoundPlace(where, path=self._name(file)), count)
            is_staged = where == "temporary file" and file.name.startswith(STAGED_PREFIX)
            if file.name.startswith(_DRAFT) or (count and (is_staged or file.name in _CACHES)):
                file.unlink(missing_ok=True)
            elif count:
                _replace(file, data)
        for directory in self._trashed_histories():
            if self._find_in_history(directory, findings):
                # in one step, because half of a history cannot be searched
                shutil.rmtree(directory.rename(directory.with_name(_GONE)))
        self._beyond_reach(findings)

    def _remove_leftovers(self) -> None:
        """Remove copies of the records that killed backups left, and histories that were being removed."""
        if copies := self.home.records_copies():
            with deleting(self.home):
                for copy in copies:
                    copy.unlink(missing_ok=True)
        for place in self._trash():
            if (place / _GONE).exists():
                shutil.rmtree(place / _GONE)

    def _find_in_history(self, directory: Path, findings: Findings) -> bool:
        """Add the places in a history of the trash. Return True if there are any."""
        own, name = Findings(), self._name(directory)
        try:
            find_in_trashed_history(directory, name, self.finder, own)
        except Unavailable:
            findings.cannot(
                "trash", f"{name} cannot be searched, because git cannot read it: remove it"
            )
        for one in own.found:
            findings.add(one.place, one.count)
        return bool(own.found)

    def _files(self) -> Iterator[tuple[Where, Path]]:
        for place in self._trash():
            for file in files_below(place):
                if "history.git" not in file.relative_to(place).parts[:1]:
                    yield "trash", file
        for name in sorted(self.namespaces):
            for file in files_below(self.home.staging(name)):
                if not file.name.startswith(LABEL_PREFIX):  # the workspace looks after these
                    yield "temporary file", file
            card = self.home.card(name)
            if card.is_file():
                yield "local file", card
        for file in files_below(self.home.entries_staging):
            yield "temporary file", file
        if self.is_default:
            yield from self._of_the_home()

    def _of_the_home(self) -> Iterator[tuple[Where, Path]]:
        for directory in (self.home.templates, self.home.used):
            for file in files_below(directory):
                yield "local file", file
        for directory in (self.home.root, self.home.cards):
            for pattern in ("*.yaml", f"{_DRAFT}*"):
                for file in sorted(directory.glob(pattern)):
                    yield "local file", file
        for cache in _CACHES:
            file = self.home.root / "search" / cache
            if file.is_file():
                yield "index", file

    def _trash(self) -> list[Path]:
        """Return the directories of the trash whose workspaces were the account's."""
        if not self.home.trash_root.is_dir():
            return []
        return [
            entry.place
            for entry in trash_entries(self.home)
            if entry.place.name.endswith(namespace(self.account_id, entry.id))
        ]

    def _trashed_histories(self) -> list[Path]:
        return [
            place / "history.git" for place in self._trash() if (place / "history.git").is_dir()
        ]

    def _beyond_reach(self, findings: Findings) -> None:
        state = self.home.state if self.state is None else self.state
        for file in sorted(state.parent.glob(f"{state.name}{_DAMAGED}*")):
            why = "is a damaged copy of the records, which nobody can search: delete it"
            findings.cannot("local file", f"{file.name} {why}")
        if self.home.restored.exists():
            why = "is what an interrupted restore left: run `harness restore` again, or delete it"
            findings.cannot("temporary file", f"{self.home.restored} {why}")

    def _name(self, file: Path) -> str:
        return self.finder.replaced(str(file.relative_to(self.home.root)))


def _read(file: Path) -> bytes:
    """Return the bytes of a file; none if it is gone meanwhile, as temporary files go at any time."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def _replace(file: Path, data: bytes) -> None:
    """Replace a file, with its rights, durably."""
    draft = file.with_name(f"{_DRAFT}{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        shutil.copymode(file, draft)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise as_failure(error, str(file)) from error
