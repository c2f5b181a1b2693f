"""The port for small items: accounts, agents, conversations, transcripts, claims, leases.

An item has a key of two strings (partition and sort), a JSON object as its value, and a counter that
grows with every change. Changes come in batches. A batch happens whole or not at all:

    store.write(
        Check(lease, counter=7),                       # the guard: only while I hold the lease
        Put(entry, {"text": "…"}, expect=ABSENT),
    )

The guard makes fencing effective. The store decides it in the same instant as the write that it protects,
not a caller who may have slept in between. It is no extra mechanism, only a change that changes nothing.
DynamoDB's transactions have exactly this shape; SQLite's are richer.

`expect` is a counter, ABSENT or ANY. An item past its `expires_at` is absent to every reader and to every
condition, whether or not the store has removed it yet. Counters begin anew with a new item. So an item
that serves as a guard must neither expire nor be deleted.

An answer can get lost after the change was made. `Conflict` always means that nothing of the batch was
written. If a store or wrapper cannot find out whether its batch happened, it raises `Unavailable`, and the
caller reads before it continues. A caller may repeat reads, scans and batches that expect nothing (ANY
throughout). A repeated `Put` then moves the counter twice.

tests/conformance/record_store.py runs this contract against every adapter and wrapper.
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
"""Larger values belong in the blob store, by reference.

So items stay cheap to scan and never reach DynamoDB's limit of 400 KB.
"""

BATCH_CHANGES_MAX = 100
"""DynamoDB allows a hundred changes in one transaction."""

KEY_BYTES_MAX = 1024
"""DynamoDB's limit of a sort key; it allows 2 048 bytes for a partition."""

BATCH_BYTES_MAX = 3 * 2**20
"""All values of one batch together. DynamoDB allows 4 MB per transaction, keys and names included."""

STORE_NAME = "the record store"
"""The name of a record store in errors that any caller may read."""

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
    """The value as `json_of` writes it, if the caller already has that text."""


@dataclass(frozen=True, slots=True)
class Delete:
    key: Key
    expect: Condition = ANY


@dataclass(frozen=True, slots=True)
class Check:
    """A guard: the rest of the batch is written only if this item has this counter (or is ABSENT)."""

    key: Key
    expect: Condition


RecordChange = Put | Delete | Check


class RecordStore(Protocol):
    """A store of small items with counters, changed in batches. Several threads may call a store."""

    def get(self, key: Key) -> Item | None: ...

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        """Write all changes or none. Return the counters of the `Put`s, in order. Durable on return.

        Raises: Conflict, naming the first key whose condition did not hold.
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
        """Return at most `limit` items of one partition with `start` <= sort < `end`.

        They ascend by UTF-8 bytes; `backwards` begins at the end.
        """
        ...

    def close(self) -> None: ...


def with_prefix(store: RecordStore, partition: str, prefix: str) -> list[Item]:
    """Return every item of a partition whose sort key starts with `prefix`, in any number."""
    items: list[Item] = []
    start, end = prefix, prefix + "\U0010ffff"
    while page := store.scan(partition, start=start, end=end):
        items += page
        if len(page) < SCAN_ITEMS_MAX:
            break
        start = page[-1].key.sort + "\0"
    return items


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def json_of(key: Key, value: JsonObject) -> str:
    """Return the value of an item as it is stored.

    Raises: Refused if the value is not JSON.
    """
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError) as error:  # ValueError: NaN, or a circular reference
        raise _no_json(key, value, error) from error


def fits(text: str) -> bool:
    """Return True if this text may be the value of one item."""
    return len(text) <= VALUE_BYTES_MAX and len(text.encode(errors="replace")) <= VALUE_BYTES_MAX


def encoded(put: Put) -> str:
    """Return the value as JSON text.

    Raises: OverLimit if it is too large. Refused if it is not JSON.
    """
    text = json_of(put.key, put.value) if put.text is None else put.text
    try:
        size = _bytes(text)
    except UnicodeEncodeError as error:  # a lone surrogate
        raise _no_json(put.key, put.value, error) from error
    if size > VALUE_BYTES_MAX:
        raise OverLimit(f"record {put.key}", maximum=VALUE_BYTES_MAX, actual=size, unit="bytes")
    return text


def encoded_batch(changes: Sequence[RecordChange]) -> list[str]:
    """Return the text of every `Put` in order, with "" for the other changes.

    Raises: OverLimit if a value or the whole batch is too large. Refused if a value is not JSON.
    """
    texts = [encoded(change) if isinstance(change, Put) else "" for change in changes]
    size = sum(map(_bytes, texts))
    if size > BATCH_BYTES_MAX:
        raise OverLimit("values in a batch", maximum=BATCH_BYTES_MAX, actual=size, unit="bytes")
    return texts


def _no_json(key: Key, value: JsonObject, error: Exception) -> Refused:
    return Refused(str(key), value, f"cannot be stored as JSON: {error}")


def _bytes(text: str) -> int:
    """Return the length of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_batch(changes: Sequence[RecordChange]) -> None:
    """Check the limits that all stores share, before anything is read or written.

    Raises: OverLimit for too many changes. Refused for a repeated or invalid key.
    """
    if len(changes) > BATCH_CHANGES_MAX:
        raise OverLimit(
            "changes in a batch", maximum=BATCH_CHANGES_MAX, actual=len(changes), unit="changes"
        )
    keys = [change.key for change in changes]
    if len(set(keys)) < len(keys):
        raise Refused("changes", [str(key) for key in keys], "contain one item twice")
    for part in (part for key in keys for part in key):
        if not 0 < len(part.encode(errors="surrogatepass")) <= KEY_BYTES_MAX:
            raise Refused("key", part, f"must be 1 to {KEY_BYTES_MAX} bytes long")
        if not part.isascii() and any("\ud800" <= character <= "\udfff" for character in part):
            raise Refused("key", part, "contains half of a surrogate pair")
