"""Probe whether a store keeps its conditions, since some servers accept conditions and ignore them.

A store that overwrites in spite of a condition loses another writer's change and reports success. So
code that relies on conditions probes first. The probe uses one scratch blob with a name of its own. It
writes, overwrites and deletes that blob, under conditions that hold and conditions that do not.

The name is below `.probe/`. A probe that is killed leaves a few bytes there. So the probe runs in the
store that holds the namespaces, not inside one of them, where the blob would pass for a file.
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
    """Without it two writers overwrite each other, so two-way sync is impossible."""
    conditional_delete: bool
    """Without it a delete may remove a version that another machine has just written."""


def probe(store: BlobStore) -> Capabilities:
    """Return the capabilities of a store.

    Raises: Unavailable if the store cannot be reached at all.
    """
    name = PROBE_PREFIX + new_id("probe")
    try:
        return Capabilities(
            conditional_put=_honours_put(store, name),
            conditional_delete=_honours_delete(store, name),
        )
    finally:
        store.delete(name, expect=ANY)


def keeps_conditions(records: RecordStore) -> bool:
    """Return True if a record store refuses stale counters, and refuses guards that do not hold."""
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
    """Return True if PUT conditions are kept. Both outcomes of both conditions are tried, since a server
    that refuses everything is of no use either."""
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
    return _refuses_stale_delete(store, name, stale) and _allows_delete(store, name, current)


def _refuses_stale_delete(store: BlobStore, name: BlobName, stale: Token) -> bool:
    try:
        store.delete(name, expect=stale)
    except Conflict:
        return True
    return False


def _allows_delete(store: BlobStore, name: BlobName, current: Token) -> bool:
    try:
        store.delete(name, expect=current)
    except Conflict:
        return False
    return True
