"""The backups that were made of this home, and what they are told of later: what was forgotten since.

    backups.json                   {<place>: <stamp of the newest backup there>}, in the home
    forbidden/<accountId>.json     {format, rules: [<a rule or a key>, …]}, beside the snapshots of a place

A snapshot never changes, so an older one keeps a text that was forgotten since. A restore reads the rules
beside it, of whatever age it is, and takes the text out again. Homes that were restored from one place, and
are saved there again, share the rules of their accounts: of two states of a rule the later counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from workspaces.conditions import ABSENT
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.forgetting.rule import RuleEntry, is_later, rule_from_json
from workspaces.home.layout import Home
from workspaces.home.locations import blobs_at
from workspaces.ids import AccountId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.contention import until_written
from workspaces.storage.retrying import RetryingBlobs

_FILE = "locks/backups.json"
_LOCATIONS = ("s3:", "file:", "memory:")
PLACES_MAX = 100
FORMAT = 1

_DAMAGED = (Refused, OverLimit, ValueError, LookupError, TypeError, RecursionError)


@dataclass(frozen=True, slots=True)
class KnownBackup:
    place: str
    at: str
    """The name of its snapshot."""


class BackupRules:
    """The rules beside the backups at one place. They are as trusted as the backups."""

    def __init__(self, store: BlobStore, place: str) -> None:
        self._store = store
        self._place = place

    def read(self, account_id: AccountId) -> list[RuleEntry]:
        """Return the rules of an account.

        Raises: Refused if the object is damaged.
        """
        name = _name(account_id)
        try:
            return self._parsed(name, self._store.read(name).data)
        except NotFound:
            return []
        except _NewerRules:
            raise
        except _DAMAGED as error:
            raise Refused(
                f"{name} at {self._place}",
                None,
                f"is damaged, so it is not known what was forgotten since the backup ({error})",
                remedy="`harness backup create` writes it anew; if that home is lost, remove the object",
            ) from error

    @until_written("what is forbidden, beside the backups")
    def publish(self, account_id: AccountId, entries: Mapping[str, RuleEntry]) -> None:
        """Add what is forbidden in a home to what is known here. A damaged object is written anew."""
        name, there, expect = _name(account_id), dict[str, RuleEntry](), ABSENT
        with suppress(NotFound):
            blob = self._store.read(name)
            expect = blob.token
            try:
                there = {one.id: one for one in self._parsed(name, blob.data)}
            except _NewerRules:
                raise
            except _DAMAGED:
                pass
        news = {one.id: one for one in entries.values() if is_later(one, there.get(one.id))}
        if news:
            rules = [one.as_json() for _, one in sorted({**there, **news}.items())]
            data = json.dumps({"format": FORMAT, "rules": rules}, indent=1).encode()
            self._store.write(name, data, expect=expect)

    def _parsed(self, name: str, data: bytes) -> list[RuleEntry]:
        document = json.loads(data)
        version = int(document["format"])
        if version > FORMAT:
            rule = f"is newer than this version can read ({FORMAT})"
            field = f"{name} at {self._place}: format"
            raise _NewerRules(field, version, rule, remedy="use a newer workspace-harness")
        rules: Iterable[object] = document["rules"]
        return [rule_from_json(one) for one in rules]


class _NewerRules(Refused):
    """A later version has written them."""


def rules_at(place: str) -> BackupRules | None:
    """Return the rules beside the backups at a place. None if it is a directory that is not there now."""
    location = place
    if not place.startswith(_LOCATIONS):
        if not (Path(place).is_absolute() and (Path(place) / "blobs").is_dir()):
            return None
        location = f"file:{place}"
    return BackupRules(RetryingBlobs(blobs_at(location, field="backup")), place)


def known_backups(home: Home) -> list[KnownBackup]:
    """Return the newest backup of each place, the newest first."""
    with suppress(OSError, ValueError, AttributeError):
        stored = cast("dict[str, str]", json.loads((home.root / _FILE).read_text()))
        found = [KnownBackup(str(place), str(at)) for place, at in stored.items()]
        return sorted(found, key=lambda one: one.at, reverse=True)
    return []


def note_backup(home: Home, place: str, at: str) -> None:
    """Note a backup. A home that takes no file is backed up all the same."""
    if not place.startswith(_LOCATIONS):
        place = str(Path(place).expanduser().absolute())
    places = {one.place: one.at for one in known_backups(home)} | {place: at}
    newest = sorted(places.items(), key=lambda one: one[1], reverse=True)[:PLACES_MAX]
    draft = home.root / f"{_FILE}.new"
    with suppress(OSError):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(dict(newest), file)
        draft.rename(home.root / _FILE)


def _name(account_id: AccountId) -> str:
    return f"forbidden/{account_id}.json"
