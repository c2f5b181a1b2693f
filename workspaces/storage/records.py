"""The port for small items: accounts, agents, conversations, transcripts, claims, leases.

An item lies under a key of two strings, partition and sort; holds a JSON object; and carries a
counter that grows with every change. Changes come in batches that happen whole or not at all:

    store.write(
        Check(lease, counter=7),                       # the guard: only while I hold the lease
        Put(entry, {"text": "…"}, expect=ABSENT),
    )

The guard is what makes fencing real: it is decided in the same instant as the write it protects, by
the store and not by a caller who may have slept in between. It is no extra mechanism, only a change
that changes nothing. DynamoDB's transactions have exactly this shape; SQLite's are richer.

`expect` is a counter, ABSENT or ANY. An item past its `expires_at` is absent to every reader and to
every condition, whether or not the store has swept it yet; counters begin anew with a new item, so
what guards must neither expire nor be deleted.

An answer can get lost after the change was made. `Conflict` always means that nothing of the batch was
written; where a store or wrapper cannot find out whether its batch happened, it says `Unavailable`, and
the caller reads before it goes on. Reads, scans and batches that expect nothing (ANY throughout) may be
repeated; a repeated `Put` then moves the counter twice.

The contract is executed by tests/conformance/record_store.py against every adapter and wrapper.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from workspaces.conditions import ANY, Wildcard
from workspaces.errors import OverLimit, Refused

JsonObject = dict[str, Any]

VALUE_BYTES_MAX = 64 * 1024
"""Larger values belong in the blob store, by reference: items stay cheap to scan, and DynamoDB's
400 KB are never met."""

BATCH_CHANGES_MAX = 100
"""DynamoDB takes a hundred changes in one transaction."""

KEY_BYTES_MAX = 1024
"""DynamoDB's limit of a sort key; partitions may have 2 048 there."""

BATCH_BYTES_MAX = 3 * 2**20
"""The values of one batch together; DynamoDB takes 4 MB in one transaction, keys and names included."""

SCAN_ITEMS_MAX = 1000

Counter = int
Condition = Counter | Wildcard


class Key(NamedTuple):
    partition: str
    sort: str

    def __str__(self) -> str:
        return f"{self.partition} / {self.sort}"


@dataclass(frozen=True, slots=True)
class Item:
    key: Key
    value: JsonObject
    counter: Counter
    expires_at: float | None = None
    """Seconds since the epoch by the store's clock."""


@dataclass(frozen=True, slots=True)
class Put:
    key: Key
    value: JsonObject
    expect: Condition = ANY
    expires_at: float | None = None
    text: str | None = field(default=None, compare=False, repr=False)
    """The value as `json_of` writes it, where whoever made this has it already."""


@dataclass(frozen=True, slots=True)
class Delete:
    key: Key
    expect: Condition = ANY


@dataclass(frozen=True, slots=True)
class Check:
    """Write the rest of the batch only while this item has this counter (or is ABSENT)."""

    key: Key
    expect: Condition


RecordChange = Put | Delete | Check


class RecordStore(Protocol):
    """Small items with counters, changed in batches. Safe to call from several threads."""

    def get(self, key: Key) -> Item | None: ...

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        """All changes or none; the counters of the `Put`s, in order. Durable on return.

        Conflict, naming the first key whose condition did not hold.
        """
        ...

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        """Items of one partition with `start` <= sort < `end`, ascending by UTF-8 bytes, at most
        `limit`; `backwards` begins at the end."""
        ...

    def close(self) -> None: ...


def with_prefix(store: RecordStore, partition: str, prefix: str) -> list[Item]:
    """Every item of a partition whose sort key starts with `prefix`, however many."""
    found: list[Item] = []
    start, end = prefix, prefix + "\U0010ffff"
    while page := store.scan(partition, start=start, end=end):
        found += page
        if len(page) < SCAN_ITEMS_MAX:
            break
        start = page[-1].key.sort + "\0"
    return found


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_of(key: Key, value: JsonObject) -> str:
    """As the value of an item is kept, refused when it is not JSON."""
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError) as error:  # ValueError: NaN, a circle
        raise _no_json(key, value, error) from error


def fits(text: str) -> bool:
    """Whether this may be the value of one item."""
    return len(text) <= VALUE_BYTES_MAX and len(text.encode(errors="replace")) <= VALUE_BYTES_MAX


def encoded(put: Put) -> str:
    """The value as JSON text, refused when it is too large or not JSON."""
    text = json_of(put.key, put.value) if put.text is None else put.text
    try:
        size = _bytes(text)
    except UnicodeEncodeError as error:  # a lone surrogate
        raise _no_json(put.key, put.value, error) from error
    if size > VALUE_BYTES_MAX:
        raise OverLimit(f"record {put.key}", maximum=VALUE_BYTES_MAX, actual=size, unit="bytes")
    return text


def encoded_batch(changes: Sequence[RecordChange]) -> list[str]:
    """The text of every `Put`, in order, with "" for the others."""
    texts = [encoded(change) if isinstance(change, Put) else "" for change in changes]
    size = sum(map(_bytes, texts))
    if size > BATCH_BYTES_MAX:
        raise OverLimit("values in a batch", maximum=BATCH_BYTES_MAX, actual=size, unit="bytes")
    return texts


def _no_json(key: Key, value: JsonObject, error: Exception) -> Refused:
    return Refused(str(key), value, f"cannot be kept as JSON: {error}")


def _bytes(text: str) -> int:
    """As UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_batch(changes: Sequence[RecordChange]) -> None:
    """The limits that every store shares, asked before anything is touched."""
    if len(changes) > BATCH_CHANGES_MAX:
        raise OverLimit(
            "changes in a batch", maximum=BATCH_CHANGES_MAX, actual=len(changes), unit="changes"
        )
    keys = [change.key for change in changes]
    if len(set(keys)) < len(keys):
        raise Refused("changes", [str(key) for key in keys], "name one item twice")
    for part in (part for key in keys for part in key):
        if not 0 < len(part.encode(errors="surrogatepass")) <= KEY_BYTES_MAX:
            raise Refused("key", part, f"must have 1 to {KEY_BYTES_MAX} bytes")
        if not part.isascii() and any("\ud800" <= character <= "\udfff" for character in part):
            raise Refused("key", part, "holds half of a surrogate pair")
