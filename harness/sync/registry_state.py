"""The state that a machine stores about its passes over a registry.

    roster:<account>:<place>   entry:<kind>:<id>    the last synced entry and its token in S3
                               troubles             what the last pass could not sync
                               waits                S3 did not answer; expires after a while

A row is written after the effect that it records. Each location has rows of its own: a location knows
nothing of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from workspaces.errors import Refused
from workspaces.ids import AccountId
from workspaces.remote.registry import (
    KINDS,
    RegistryEntry,
    RegistryKind,
    StoredEntry,
    as_document,
    of_document,
)
from workspaces.storage.blobs import Token
from workspaces.storage.records import Delete, Item, Key, Put, RecordStore, with_prefix

PLACE_HEX_DIGITS = 16
"""Digits taken from the hash of a location. A location itself may be longer than a key."""

AGAIN_AFTER_S = 60.0
"""Seconds without a new attempt after S3 did not answer. Each attempt takes seconds, and a caller waits
for it."""

TROUBLES_KEPT_MAX = 100
"""The most troubles of one pass that are stored for `harness status`."""

EntryName = tuple[RegistryKind, str]
"""The kind and the id of an entry."""


@dataclass(frozen=True, slots=True)
class SyncedEntry:
    """The entry that this machine and the registry last agreed on."""

    entry: RegistryEntry
    token: Token


@dataclass(frozen=True, slots=True)
class Trouble:
    """A record that could not be synced, and why."""

    name: str
    reason: str
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "reason": self.reason, "remedy": self.remedy}


class RegistryState:
    """The stored state of one account for one location."""

    def __init__(self, account_id: AccountId, location: str, records: RecordStore) -> None:
        place = sha256(location.encode()).hexdigest()[:PLACE_HEX_DIGITS]
        self._partition = f"roster:{account_id}:{place}"
        self._records = records

    def all(self) -> dict[EntryName, SyncedEntry]:
        rows: dict[EntryName, SyncedEntry] = {}
        for item in with_prefix(self._records, self._partition, "entry:"):
            _, kind, entry_id = item.key.sort.split(":", 2)
            row = _row(kind, entry_id, item)
            if row is not None:
                rows[row[0]] = row[1]
        return rows

    def mark_synced(self, kind: RegistryKind, there: StoredEntry) -> None:
        value = {"token": there.token, "entry": as_document(there.entry)}
        self._records.write(Put(self._entry(kind, there.entry.id), value))

    def forget(self, kind: RegistryKind, entry_id: str) -> None:
        self._records.write(Delete(self._entry(kind, entry_id)))

    def troubles(self) -> list[Trouble]:
        """Return the troubles of the last pass."""
        item = self._records.get(self._key("troubles"))
        return [Trouble(**one) for one in item.value["troubles"]] if item else []

    def save_troubles(self, troubles: Iterable[Trouble]) -> None:
        first = [*troubles][:TROUBLES_KEPT_MAX]
        if first != self.troubles():
            value = {"troubles": [trouble.as_json() for trouble in first]}
            self._records.write(Put(self._key("troubles"), value))

    @property
    def is_waiting(self) -> bool:
        """True while no new attempt should be made, because S3 did not answer a moment ago."""
        return self._records.get(self._key("waits")) is not None

    def wait(self, now: datetime) -> None:
        """Make no new attempt for `AGAIN_AFTER_S`."""
        until = now.timestamp() + AGAIN_AFTER_S
        self._records.write(Put(self._key("waits"), {}, expires_at=until))

    def stop_waiting(self) -> None:
        if self.is_waiting:
            self._records.write(Delete(self._key("waits")))

    def erase(self) -> None:
        """Delete the state, because the account is deleted: the synced entries hold its records."""
        for item in with_prefix(self._records, self._partition, ""):
            self._records.write(Delete(item.key))

    def _entry(self, kind: RegistryKind, entry_id: str) -> Key:
        return self._key(f"entry:{kind}:{entry_id}")

    def _key(self, sort: str) -> Key:
        return Key(self._partition, sort)


def _row(kind: str, entry_id: str, item: Item) -> tuple[EntryName, SyncedEntry] | None:
    """Parse a stored row.

    Return None for a row that another version of the program wrote. Its record is then synced anew.
    """
    for known in KINDS:
        if known == kind:
            try:
                entry = of_document(known, entry_id, item.value["entry"])
            except Refused:
                return None
            return (known, entry_id), SyncedEntry(entry, item.value["token"])
    return None
