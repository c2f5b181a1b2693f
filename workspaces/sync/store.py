"""The store on the other side, and how often it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from workspaces.blobs import Blob, BlobStore, Expect, Meta, Stat, Token
from workspaces.paths import WorkspacePath

PAGE_KEYS = 1000
"""What one request of a listing brings."""


class CountedStore:
    def __init__(self, store: BlobStore, listing: Callable[[], Iterator[Stat]]) -> None:
        self._store = store
        self._listing = listing
        self.requests = 0
        self._lock = threading.Lock()

    def _count(self, requests: int = 1) -> None:
        with self._lock:
            self.requests += requests

    def read(self, path: WorkspacePath) -> Blob:
        self._count()
        return self._store.read(path)

    def write(self, path: WorkspacePath, data: bytes, *, expect: Expect, meta: Meta) -> Token:
        self._count()
        return self._store.write(path, data, expect=expect, meta=meta)

    def delete(self, path: WorkspacePath, *, expect: Expect) -> None:
        self._count()
        self._store.delete(path, expect=expect)

    def list(self) -> Sequence[Stat]:
        stats = list(self._listing())
        self._count(1 + max(0, len(stats) - 1) // PAGE_KEYS)
        return stats
