"""The store on the other side, and how often it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Blob, BlobStore, Expect, Meta, Stat, Token

ListFiles = Callable[[Sequence[str], Callable[[], None]], Iterator[Stat]]
"""Every object, under a good name or not. Given the names that were there, ascending, and what is called
with each request."""


class CountedStore:
    def __init__(self, store: BlobStore, listing: ListFiles) -> None:
        self._store = store
        self._listing = listing
        self.requests = 0
        self._lock = threading.Lock()

    def _count(self) -> None:
        with self._lock:
            self.requests += 1

    def read(self, path: WorkspacePath) -> Blob:
        self._count()
        return self._store.read(path)

    def write(self, path: WorkspacePath, data: bytes, *, expect: Expect, meta: Meta) -> Token:
        self._count()
        return self._store.write(path, data, expect=expect, meta=meta)

    def delete(self, path: WorkspacePath, *, expect: Expect) -> None:
        self._count()
        self._store.delete(path, expect=expect)

    def list(self, known: Sequence[str]) -> Sequence[Stat]:
        return list(self._listing(known, self._count))
