"""Wrappers of both ports that refuse every write, whatever it expects."""

from __future__ import annotations

from collections.abc import Iterator

from workspaces.errors import Refused
from workspaces.storage.blobs import NO_META, Blob, BlobName, BlobStore, Expect, Meta, Stat, Token
from workspaces.storage.records import SCAN_ITEMS_MAX, Counter, Item, Key, RecordChange, RecordStore


class ReadOnlyBlobs:
    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def read(self, name: BlobName) -> Blob:
        return self._store.read(name)

    def read_if_changed(self, name: BlobName, since: Token) -> Blob | None:
        return self._store.read_if_changed(name, since)

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:  # noqa: ARG002
        raise _refused(name)

    def delete(self, name: BlobName, *, expect: Expect) -> None:  # noqa: ARG002
        raise _refused(name)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        return self._store.scan(prefix)


class ReadOnlyRecords:
    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def get(self, key: Key) -> Item | None:
        return self._store.get(key)

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        raise _refused(", ".join(str(change.key) for change in changes))

    def scan(
        self,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        backwards: bool = False,
        limit: int = SCAN_ITEMS_MAX,
    ) -> list[Item]:
        return self._store.scan(partition, start=start, end=end, backwards=backwards, limit=limit)

    def close(self) -> None:
        self._store.close()


def _refused(name: str) -> Refused:
    return Refused("write", name, "cannot be written: the store is open for reading only")
