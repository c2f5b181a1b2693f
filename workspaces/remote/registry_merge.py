"""Pure: what is to be done about one record that several machines have.

As with files there are three states: `base`, the entry that this machine and the roster last agreed on;
`here`, what this machine would tell of its record now, None when it has none; and `there`, the entry as
it is now.

    changed only here      tell it                        deleted only here     tell a tombstone
    changed only there     take it                        deleted there         bury what is here
    changed on both        put together key by key: what only one of them changed counts; where both changed
                           one value, that of the record which was changed later, and it is said which

What is not as with files: a deletion wins over a change. Somebody meant the whole thing, and what was in
it is kept aside. And a tombstone that was once seen is believed from then on, whatever somebody puts in
its place under the same epoch. A record that is here under the id of a tombstone is a new life (only
private workspaces have ids that come again): it is told with the next epoch.
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
"""A record as machines tell it to each other."""

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Publish:
    entry: LiveEntry
    expect: Expect


@dataclass(frozen=True, slots=True)
class PublishDeletion:
    """The record that was last agreed on is not here any more."""

    was: RegistryEntry
    expect: Expect


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the record here this one, and agree on what is there."""

    record: RecordJson
    there: StoredEntry
    clashes: tuple[str, ...] = ()
    """What was changed on both sides, and had to be decided."""


@dataclass(frozen=True, slots=True)
class RemoveLocal:
    """What is here belongs to a life that is over."""

    there: StoredEntry


@dataclass(frozen=True, slots=True)
class MarkSynced:
    there: StoredEntry


@dataclass(frozen=True, slots=True)
class DropEntry:
    """It is nowhere any more."""


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
    """`is_wanted`: whether a record that is not here is to come here. `comes_again`: ids of this kind are
    given again. `here_decides`: the records here are those of all machines."""
    if not _is_same_life(base, here):
        base = None
    if there is None:
        if here is not None:
            return Publish(LiveEntry(entry_id, here, _own_epoch(base)), ABSENT)
        return DropEntry() if base is not None else None
    match there.entry:
        case Tombstone():
            return _of_the_dead(entry_id, base, here, there, there.entry, comes_again=comes_again)
        case LiveEntry():
            return _of_the_living(
                base, here, there, there.entry, is_wanted=is_wanted, here_decides=here_decides
            )


def _of_the_dead(
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
        return Publish(
            LiveEntry(entry_id, here, base.epoch), there.token
        )  # this life began after it
    if isinstance(base, LiveEntry) or not comes_again:
        return RemoveLocal(there)
    return Publish(LiveEntry(entry_id, here, tombstone.epoch + 1), there.token)


def _of_the_living(
    base: RegistryEntry | None,
    here: RecordJson | None,
    there: StoredEntry,
    living: LiveEntry,
    *,
    is_wanted: bool,
    here_decides: bool,
) -> RegistryAction | None:
    if here is None:
        if base is not None and base.epoch >= living.epoch:
            return PublishDeletion(base, there.token)
        was_here = base is not None  # in a life that is over
        return Apply(living.record, there) if is_wanted or was_here else None
    if living.epoch < (epoch := _own_epoch(base)):
        return Publish(
            LiveEntry(living.id, here, epoch), there.token
        )  # a life that is over, put back
    if isinstance(base, LiveEntry) and living.epoch > base.epoch:
        return RemoveLocal(there)
    if here == living.record:
        return None if base == living else MarkSynced(there)
    before = base.record if isinstance(base, LiveEntry) else None
    if here_decides or before == living.record:
        return Publish(LiveEntry(living.id, here, living.epoch), there.token)
    record, clashes = merge_records(before, here, living.record)
    if record == here:  # it holds all that was changed there
        return Publish(LiveEntry(living.id, here, living.epoch), there.token)
    return Apply(record, there, clashes)


def _is_same_life(base: RegistryEntry | None, here: RecordJson | None) -> bool:
    """What was made anew here since, under an id that comes again, is not what was agreed on."""
    if here is None or not isinstance(base, LiveEntry):
        return True
    return here.get("createdAt") == base.record.get("createdAt")


def _own_epoch(base: RegistryEntry | None) -> int:
    """Of a record that is here."""
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
    """The record that holds what was changed on both sides, and where both changed one value. The same on
    every machine, whichever is `here`."""
    mine, theirs = _weight(here), _weight(there)
    clashes: list[str] = []
    record = _joined(base, here, there, mine > theirs, "", clashes)
    for key, choose in (("createdAt", min), ("updatedAt", max)):
        record[key] = choose(str(here.get(key)), str(there.get(key)))
    return record, tuple(clashes)


def _joined(
    base: object,
    here: RecordJson,
    there: RecordJson,
    here_is_later: bool,
    within: str,
    clashes: list[str],
) -> dict[str, Any]:
    known: RecordJson = cast(RecordJson, base) if isinstance(base, Mapping) else {}
    joined: dict[str, Any] = {}
    for key in dict.fromkeys((*here, *there)):
        was, mine = known.get(key, _MISSING), here.get(key, _MISSING)
        theirs = there.get(key, _MISSING)
        value: Any = theirs
        if mine in (theirs, was):
            pass
        elif theirs == was:
            value = mine
        elif isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            parts = (cast(RecordJson, mine), cast(RecordJson, theirs))
            value = _joined(was, *parts, here_is_later, f"{within}{key}.", clashes)
        elif key not in ("createdAt", "updatedAt"):
            value = cast(object, mine if here_is_later else theirs)
            clashes.append(f"{within}{key}")
        if value is not _MISSING:
            joined[key] = value
    return joined


def _weight(record: RecordJson) -> tuple[str, str]:
    """Which of two is the later one; a tie is broken by what they say."""
    return str(record.get("updatedAt")), json.dumps(record, sort_keys=True, default=dict)
