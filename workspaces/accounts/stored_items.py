"""The stored items of one kind of record, found by id or handle and not validated.

`record_catalog` makes records of them. A command that only opens a workspace reads the items themselves:
they were validated when they were written.
"""

from __future__ import annotations

from typing import NamedTuple

from workspaces.errors import NotFound
from workspaces.ids import AccountId
from workspaces.storage.records import Item, Key, RecordStore, with_prefix

REFERENCE_BYTES_MAX = 900
"""Longer than any name in bytes. With its prefix a reference still fits a record's key."""


class Handle(NamedTuple):
    """The value of a field by which a record is found, usually its name."""

    field: str
    value: str


def partition_of(account_id: AccountId) -> str:
    """Return the partition of an account's records."""
    return f"account:{account_id}"


class StoredItems:
    """The items of one kind in one partition."""

    def __init__(
        self,
        kind: str,
        partition: str,
        records: RecordStore,
        *,
        handles: tuple[str, ...] = ("name",),
    ) -> None:
        self._kind = kind
        self._partition = partition
        self._records = records
        self._handles = handles

    def get(self, reference: str, by: tuple[str, ...] | None = None) -> Item:
        """Return the item with this id, else with this value in one of the handles `by` (default: any).

        Raises: NotFound if there is none.
        """
        if _could_name(reference):
            item = self._records.get(self.key(reference))
            for field in self._handles if by is None else by:
                item = item or self._item_by_handle(self.handle_key(Handle(field, reference)))
            if item is not None:
                return item
        raise NotFound(self._kind, reference)

    def list(self) -> list[Item]:
        return list(with_prefix(self._records, self._partition, f"{self._kind}:"))

    def key(self, record_id: str) -> Key:
        return Key(self._partition, f"{self._kind}:{record_id}")

    def handle_key(self, handle: Handle) -> Key:
        return Key(self._partition, f"{self._kind}-{handle.field}:{handle.value}")

    def _item_by_handle(self, handle: Key) -> Item | None:
        pointer = self._records.get(handle)
        return self._records.get(self.key(pointer.value["id"])) if pointer else None


def _could_name(reference: str) -> bool:
    """Return True if a store can look up this reference.

    An empty or endless text names no record, nor do command-line bytes that are not UTF-8.
    """
    try:
        return 0 < len(reference.encode()) < REFERENCE_BYTES_MAX
    except UnicodeEncodeError:
        return False
