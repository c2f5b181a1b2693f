"""The remote store, with a count of the requests made to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Blob, BlobStore, Expect, Meta, Stat, Token

ListFiles = Callable[[int, Callable[[], None]], Iterator[Stat]]
"""Yields every object, under a valid name or not. The arguments are the number that is expected and a
callback that runs with each request."""


class CountedStore:
    """The remote store of one workspace. Threads may share it."""

    def __init__(self, store: BlobStore, list_files: ListFiles) -> None:
        self._store = store
        self._list_files = list_files
        self.requests = 0
        self._lock = threading.Lock()

    def _count(self) -> None:
        with self._lock:
            self.requests += 1

    def read(self, path: WorkspacePath) -> Blob:
        self._count()
        return self._store.read(path)

    def read_if_changed(self, path: WorkspacePath, since: Token) -> Blob | None:
        self._count()
        return self._store.read_if_changed(path, since)

    def write(self, path: WorkspacePath, data: bytes, *, expect: Expect, meta: Meta) -> Token:
        self._count()
        return self._store.write(path, data, expect=expect, meta=meta)

    def delete(self, path: WorkspacePath, *, expect: Expect) -> None:
        self._count()
        self._store.delete(path, expect=expect)

    def list(self, expected: int) -> Sequence[Stat]:
        return list(self._list_files(expected, self._count))
