"""Verify a forgetting: look for its text everywhere again, in raw bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

from harness.forgetting.forgettings import Forgettings
from harness.forgetting.raw_bytes import RawSearch
from harness.forgetting.record_places import AccountPlaces
from workspaces.errors import Refused
from workspaces.forgetting.tombstone import tombstone_of
from workspaces.forgetting.words import words_of
from workspaces.ids import namespace
from workspaces.remote.bucket import SharedBucket
from workspaces.storage.records import JsonObject

_JSON = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class VerifiedForgetting:
    """Where a forgotten text was found."""

    forgetting: str
    found: tuple[str, ...]
    looked_at: str

    def as_json(self) -> JsonObject:
        return {
            "forgetting": self.forgetting,
            "found": list(self.found),
            "lookedAt": self.looked_at,
        }


def verify(
    forgettings: Forgettings, report: str, text: str, *, also: Sequence[Path] = ()
) -> VerifiedForgetting:
    """Look for the text of a forgetting in this home, in the records, in the bucket, and below other
    directories.

    Raises: NotFound if there is no such forgetting. Refused if the text is not the one that it was about.
    """
    forgetting_id, tombstones = _reported(forgettings, report)
    if not words_of(text).texts:
        raise Refused("text", None, "is empty: write the forgotten text to standard input")
    keys = forgettings.rules.known().keys.values()
    own = {tombstone_of(text, key, allow_short=True).id for key in keys}
    if own and tombstones and own.isdisjoint(tombstones):
        rule = f"is not the text of {forgetting_id}"
        raise Refused("text", None, rule, remedy="write the text as it was given to `forget`")
    search = RawSearch(text)
    found = [one.where for one in search.in_directory(forgettings.home.root)]
    places = [str(forgettings.home.root)]
    for directory in also:
        found += [f"{directory}: {one.where}" for one in search.in_directory(directory)]
        places.append(str(directory))
    if forgettings.state is None:
        found += _in_records(forgettings, search)
        places.append("the records")
    if forgettings.place is not None:
        found += _in_bucket(forgettings, forgettings.place, search)
        places.append(forgettings.place.location)
    return VerifiedForgetting(forgetting_id, tuple(dict.fromkeys(found)), ", ".join(places))


def _in_records(forgettings: Forgettings, search: RawSearch) -> Iterator[str]:
    """Yield the records of the account that hold the text, where they are not in this home."""
    places = AccountPlaces(forgettings.principal.account_id, forgettings.records)
    conversations = places.subjects().conversations
    for partition in chain(*map(places.of_conversation, conversations), places.others()):
        for item in partition.items(forgettings.records):
            sort = item.key.sort
            if search.is_in(sort.encode()) or search.is_in(_JSON.encode(item.value).encode()):
                yield f"the records: {partition.where} {search.matcher.replaced(sort)}"


def _in_bucket(forgettings: Forgettings, place: SharedBucket, search: RawSearch) -> Iterator[str]:
    """Yield the objects of the account in the bucket, and their past versions, that hold the text."""
    account_id = forgettings.principal.account_id
    names = {namespace(account_id, one.id) for one in forgettings.workspaces.list(private=True)}
    names |= place.ended_workspaces(account_id).keys()
    owners = AccountPlaces(account_id, forgettings.records).subjects().owners_of_values
    deleted = place.deleted_values() if forgettings.state is None else ()
    for one in chain(place.held(account_id, names, owners), deleted):
        if search.is_in(one.name.encode()) or search.is_in(one.data):
            version = f", version {one.version}" if one.version else ""
            yield f"{place.location}: {search.matcher.replaced(one.name)}{version}"


def _reported(forgettings: Forgettings, report: str) -> tuple[str, set[str]]:
    """Return the id of a forgetting and the ids of its tombstones, from a report or from the records."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        stored = cast("dict[str, Any]", json.loads(Path(report).read_text()))
        return str(stored["id"]), {str(one) for one in stored["tombstones"]}
    forgetting = forgettings.stored.get(report)
    return forgetting.id, set(forgetting.tombstones)
