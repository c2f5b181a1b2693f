"""Decide the action for one record that several machines have. Pure functions.

As with files there are three states. `base` is the entry on which this machine and the registry last
agreed. `here` is the record that this machine would publish now, or None. `there` is the current entry.

    changed only here      publish it                     deleted only here     publish a tombstone
    changed only there     apply it                       deleted there         remove the local copy
    changed on both        merge key by key: a change made by only one side wins; where both changed one
                           value, the record that was changed later wins, and the key is reported

Two rules differ from files. A deletion wins over a change: a person meant the whole record, and its
files are kept in the trash. And a tombstone that was read once stays valid, whatever another program
puts in its place under the same epoch. A record that exists here under the id of a tombstone is a new
life. Only private workspaces have ids that are used again. Such a record is published with the next
epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from workspaces.conditions import ABSENT
from workspaces.remote.registry import LiveEntry, RegistryEntry, StoredEntry, Tombstone
from workspaces.storage.blobs import Expect

RecordJson = Mapping[str, Any]
"""A record as machines publish it to each other."""

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Publish:
    entry: LiveEntry
    expect: Expect


@dataclass(frozen=True, slots=True)
class PublishDeletion:
    """An action that publishes the deletion of the last agreed record, which no longer exists here."""

    was: RegistryEntry
    expect: Expect


@dataclass(frozen=True, slots=True)
class Apply:
    """An action that makes the local record equal `record`, and agrees on the entry in the registry."""

    record: RecordJson
    there: StoredEntry
    clashes: tuple[str, ...] = ()
    """Keys changed to different values on both sides, where one value had to be chosen."""


@dataclass(frozen=True, slots=True)
class RemoveLocal:
    """An action that removes the local copy, which belongs to a life that is over."""

    there: StoredEntry


@dataclass(frozen=True, slots=True)
class MarkSynced:
    there: StoredEntry


@dataclass(frozen=True, slots=True)
class DropEntry:
    """An action that forgets a record that no longer exists anywhere."""


RegistryAction = Publish | PublishDeletion | Apply | RemoveLocal | MarkSynced | DropEntry


def decide(
    entry_id: str,
    base: RegistryEntry | None,
    here: RecordJson | None,
    there: StoredEntry | None,
    *,
    is_wanted: bool,
    comes_again: bool = False,
    here_decides: bool = False,
) -> RegistryAction | None:
    """Return the action for one record, or None if there is nothing to do.

    `is_wanted` is True if a record that is not here should come here. `comes_again` is True if ids of
    this kind are used again. `here_decides` is True if all machines share
    this record store, so that the record here always wins.
    """
    if not _is_same_life(base, here):
        base = None
    if there is None:  # no entry in the registry
        if here is not None:
            return Publish(LiveEntry(entry_id, here, _own_epoch(base)), ABSENT)
        return DropEntry() if base is not None else None
    match there.entry:
        case Tombstone():
            return _decide_deleted(
                entry_id, base, here, there, there.entry, comes_again=comes_again
            )
        case LiveEntry():
            return _decide_live(
                base, here, there, there.entry, is_wanted=is_wanted, here_decides=here_decides
            )


def _decide_deleted(
    entry_id: str,
    base: RegistryEntry | None,
    here: RecordJson | None,
    there: StoredEntry,
    tombstone: Tombstone,
    *,
    comes_again: bool,
) -> RegistryAction | None:
    if here is None:
        return None if base == tombstone else MarkSynced(there)
    if isinstance(base, LiveEntry) and base.epoch > tombstone.epoch:
        # This life began after the deletion.
        return Publish(LiveEntry(entry_id, here, base.epoch), there.token)
    if isinstance(base, LiveEntry) or not comes_again:
        return RemoveLocal(there)  # deleted there
    # Created here anew under an id that is used again.
    return Publish(LiveEntry(entry_id, here, tombstone.epoch + 1), there.token)


def _decide_live(
    base: RegistryEntry | None,
    here: RecordJson | None,
    there: StoredEntry,
    live: LiveEntry,
    *,
    is_wanted: bool,
    here_decides: bool,
) -> RegistryAction | None:
    if here is None:
        if base is not None and base.epoch >= live.epoch:
            return PublishDeletion(base, there.token)  # deleted only here
        was_here = base is not None  # in an earlier life
        return Apply(live.record, there) if is_wanted or was_here else None
    if live.epoch < (epoch := _own_epoch(base)):
        # An entry of an earlier life was put back.
        return Publish(LiveEntry(live.id, here, epoch), there.token)
    if isinstance(base, LiveEntry) and live.epoch > base.epoch:
        return RemoveLocal(there)  # a new life began there
    if here == live.record:  # both sides are equal
        return None if base == live else MarkSynced(there)
    agreed = base.record if isinstance(base, LiveEntry) else None
    if here_decides or agreed == live.record:  # changed only here
        return Publish(LiveEntry(live.id, here, live.epoch), there.token)
    record, clashes = merge_records(agreed, here, live.record)
    if record == here:  # already contains every change made there
        return Publish(LiveEntry(live.id, here, live.epoch), there.token)
    return Apply(record, there, clashes)


def _is_same_life(base: RegistryEntry | None, here: RecordJson | None) -> bool:
    """Return False if the local record was created anew, under an id that is used again, after the base
    was agreed."""
    if here is None or not isinstance(base, LiveEntry):
        return True
    return here.get("createdAt") == base.record.get("createdAt")


def _own_epoch(base: RegistryEntry | None) -> int:
    """Return the epoch of a record that exists here."""
    match base:
        case None:
            return 0
        case LiveEntry(epoch=epoch):
            return epoch
        case Tombstone(epoch=epoch):
            return epoch + 1


def merge_records(
    base: RecordJson | None, here: RecordJson, there: RecordJson
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Merge the changes of both sides, and return the record and the keys where both changed one value.

    The result is the same on every machine, whichever side is `here`.
    """
    mine, theirs = _sort_key(here), _sort_key(there)
    clashes: list[str] = []
    record = _merge_keys(base, here, there, mine > theirs, "", clashes)
    for key, choose in (("createdAt", min), ("updatedAt", max)):
        record[key] = choose(str(here.get(key)), str(there.get(key)))
    return record, tuple(clashes)


def _merge_keys(
    base: object,
    here: RecordJson,
    there: RecordJson,
    here_is_later: bool,
    within: str,
    clashes: list[str],
) -> dict[str, Any]:
    known: RecordJson = cast(RecordJson, base) if isinstance(base, Mapping) else {}
    merged: dict[str, Any] = {}
    for key in dict.fromkeys((*here, *there)):
        was, mine = known.get(key, _MISSING), here.get(key, _MISSING)
        theirs = there.get(key, _MISSING)
        value: Any = theirs
        if mine in (theirs, was):  # equal, or changed only there
            pass
        elif theirs == was:  # changed only here
            value = mine
        elif isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            parts = (cast(RecordJson, mine), cast(RecordJson, theirs))
            value = _merge_keys(was, *parts, here_is_later, f"{within}{key}.", clashes)
        elif key not in ("createdAt", "updatedAt"):
            value = cast(object, mine if here_is_later else theirs)
            clashes.append(f"{within}{key}")
        if value is not _MISSING:
            merged[key] = value
    return merged


def _sort_key(record: RecordJson) -> tuple[str, str]:
    """Return the key that orders two records by age. Their content breaks a tie."""
    return str(record.get("updatedAt")), json.dumps(record, sort_keys=True, default=dict)
