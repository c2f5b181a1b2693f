"""Agreements: what a machine remembers of its passes over a roster.

    roster:<account>:<place>   entry:<kind>:<id>    what was last agreed on, and its token there
                               troubles             what could not be brought together in the last pass
                               waits                a place did not answer; gone after a while

A row is written after the effect that it speaks of. Of another place nothing is remembered: each has rows
of its own.
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
"""Of the hash of a location, which may be longer than a key."""

AGAIN_AFTER_S = 60.0
"""Each attempt to reach a place that does not answer takes seconds, and somebody waits for them."""

TROUBLES_KEPT_MAX = 100
"""Of one pass, for `harness status`."""

EntryName = tuple[RegistryKind, str]


@dataclass(frozen=True, slots=True)
class SyncedEntry:
    """What was last agreed on."""

    entry: RegistryEntry
    token: Token


@dataclass(frozen=True, slots=True)
class Trouble:
    """What could not be brought together."""

    name: str
    reason: str
    remedy: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "reason": self.reason, "remedy": self.remedy}


class RegistryState:
    """Of one account, about one place."""

    def __init__(self, account_id: AccountId, location: str, records: RecordStore) -> None:
        place = sha256(location.encode()).hexdigest()[:PLACE_HEX_DIGITS]
        self._partition = f"roster:{account_id}:{place}"
        self._records = records

    def all(self) -> dict[EntryName, SyncedEntry]:
        found: dict[EntryName, SyncedEntry] = {}
        for item in with_prefix(self._records, self._partition, "entry:"):
            _, kind, entry_id = item.key.sort.split(":", 2)
            row = _row(kind, entry_id, item)
            if row is not None:
                found[row[0]] = row[1]
        return found

    def agree(self, kind: RegistryKind, there: StoredEntry) -> None:
        value = {"token": there.token, "entry": as_document(there.entry)}
        self._records.write(Put(self._entry(kind, there.entry.id), value))

    def forget(self, kind: RegistryKind, entry_id: str) -> None:
        self._records.write(Delete(self._entry(kind, entry_id)))

    def troubles(self) -> list[Trouble]:
        """Of the last pass."""
        item = self._records.get(self._key("troubles"))
        return [Trouble(**one) for one in item.value["troubles"]] if item else []

    def keep_troubles(self, troubles: Iterable[Trouble]) -> None:
        kept = [*troubles][:TROUBLES_KEPT_MAX]
        if kept != self.troubles():
            told = {"troubles": [trouble.as_json() for trouble in kept]}
            self._records.write(Put(self._key("troubles"), told))

    @property
    def is_waiting(self) -> bool:
        return self._records.get(self._key("waits")) is not None

    def wait(self, now: datetime) -> None:
        soon = now.timestamp() + AGAIN_AFTER_S
        self._records.write(Put(self._key("waits"), {}, expires_at=soon))

    def wait_no_longer(self) -> None:
        if self.is_waiting:
            self._records.write(Delete(self._key("waits")))

    def erase(self) -> None:
        for item in with_prefix(self._records, self._partition, ""):
            self._records.write(Delete(item.key))

    def _entry(self, kind: RegistryKind, entry_id: str) -> Key:
        return self._key(f"entry:{kind}:{entry_id}")

    def _key(self, sort: str) -> Key:
        return Key(self._partition, sort)


def _row(kind: str, entry_id: str, item: Item) -> tuple[EntryName, SyncedEntry] | None:
    """None for what another version of the program has written: it is agreed on anew."""
    for known in KINDS:
        if known == kind:
            try:
                entry = of_document(known, entry_id, item.value["entry"])
            except Refused:
                return None
            return (known, entry_id), SyncedEntry(entry, item.value["token"])
    return None
