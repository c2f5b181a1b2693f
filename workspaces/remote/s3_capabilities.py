"""Does a store keep its word? Tried, not asked: some servers accept conditions and ignore them.

A store that overwrites in spite of a condition loses what somebody else has just written, and says that
all went well. So whoever relies on conditions probes first: with one scratch blob under a name of its own,
which is written, written again and deleted under conditions that hold and that do not.

The name lies in `.probe/`. A probe that is killed leaves a few bytes there, so the store to probe is the
one that holds the namespaces, not one of them: there nobody takes it for a file.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from workspaces.conditions import ABSENT, ANY
from workspaces.errors import Conflict
from workspaces.ids import new_id
from workspaces.storage.blobs import BlobName, BlobStore, Expect, Token
from workspaces.storage.records import Check, Delete, Item, Key, Put, RecordChange, RecordStore

PROBE_PREFIX = ".probe/"


@dataclass(frozen=True, slots=True)
class Capabilities:
    conditional_put: bool
    """Without it two writers overwrite each other: no two-way sync."""
    conditional_delete: bool
    """Without it a delete may take along what somebody has just written."""


def probe(store: BlobStore) -> Capabilities:
    """Unavailable when the store cannot be asked at all."""
    name = PROBE_PREFIX + new_id("probe")
    try:
        return Capabilities(
            conditional_put=_honours_put(store, name),
            conditional_delete=_honours_delete(store, name),
        )
    finally:
        store.delete(name, expect=ANY)


def keeps_conditions(records: RecordStore) -> bool:
    """The same question to a record store: are stale counters, and guards that do not hold, refused?"""
    partition = new_id("probe")
    item, guard = Key(partition, "item"), Key(partition, "guard")
    (counter,) = records.write(Put(item, {"n": 1}, expect=ABSENT))
    try:
        return (
            _is_refused(records, Put(item, {"n": 2}, expect=ABSENT))
            and _is_refused(records, Put(item, {"n": 2}, expect=counter + 1))
            and _is_refused(records, Put(item, {"n": 2}), Check(guard, expect=1))
            and records.get(item) == Item(item, {"n": 1}, counter)
        )
    finally:
        records.write(Delete(item))


def _is_refused(records: RecordStore, *changes: RecordChange) -> bool:
    try:
        records.write(*changes)
    except Conflict:
        return True
    return False


def _honours_put(store: BlobStore, name: BlobName) -> bool:
    """Both sides of both conditions: a server that refuses everything is of no use either."""
    first = store.write(name, b"first", expect=ABSENT)
    if not _conflicts(store, name, b"second", ABSENT):
        return False
    with suppress(Conflict):
        second = store.write(name, b"third", expect=first)
        return _conflicts(store, name, b"fourth", first) and store.read(name).token == second
    return False


def _conflicts(store: BlobStore, name: BlobName, data: bytes, expect: Expect) -> bool:
    try:
        store.write(name, data, expect=expect)
    except Conflict:
        return True
    return False


def _honours_delete(store: BlobStore, name: BlobName) -> bool:
    stale = store.write(name, b"old", expect=ANY)
    current = store.write(name, b"new", expect=ANY)
    return _keeps(store, name, stale) and _lets_go(store, name, current)


def _keeps(store: BlobStore, name: BlobName, stale: Token) -> bool:
    try:
        store.delete(name, expect=stale)
    except Conflict:
        return True
    return False


def _lets_go(store: BlobStore, name: BlobName, current: Token) -> bool:
    try:
        store.delete(name, expect=current)
    except Conflict:
        return False
    return True
