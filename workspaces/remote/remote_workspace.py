"""A workspace that is read directly in S3, without a copy on this machine.

It is read-only: there is no tree, no history, no index and no baseline here. Opening one writes nothing
to the disk and sends no request. Each read is one request. A listing is one request for each thousand
names, and is refused if there are more names than the workspace may hold. Readers see the state in S3.
Changes that another machine has not pushed yet are missing.

A store that does not answer raises `Unavailable` for the caller of that read, and affects no other
caller.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from workspaces.errors import NotFound
from workspaces.file import File
from workspaces.ids import Namespace
from workspaces.paths import WorkspacePath, broken_rule
from workspaces.storage.blobs import Blob, Stat, Token
from workspaces.tree.conflict_copy import is_conflict
from workspaces.workspace_record import WorkspaceRecord

SMALL_FILE_BYTES_MAX = 64 * 1024
"""Largest file that is read for its beginning, because S3 would send the whole file."""

SMALL_FILES_CACHED = 256
"""Number of cached small files, at most 16 MiB. So an index of notes costs only one listing from the
second time on."""

THREADS = 16
"""Small files read at the same time."""


class FileListing(Protocol):
    """A reader of the objects of one workspace in the bucket, under limits."""

    def read(self, name: str) -> Blob:
        """Return one object.

        Raises: NotFound, OverLimit or Unavailable.
        """
        ...

    def walk(self, prefix: str = "") -> Iterator[Stat]:
        """Yield every object, under a valid name or not.

        Raises: OverLimit or Unavailable.
        """
        ...


class RemoteWorkspace:
    """A workspace read directly in S3. Threads may share it."""

    def __init__(self, record: WorkspaceRecord, namespace: Namespace, files: FileListing) -> None:
        self.record = record
        self.namespace = namespace
        self._files = files
        self._small_files: OrderedDict[tuple[str, Token], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str) -> File:
        path = WorkspacePath(path)
        return File(path, self._files.read(path).data)

    def find(self, directory: str, matches: Callable[[str], bool]) -> list[Stat]:
        """Return the files below a directory ("" is the root) whose path matches.

        This includes only names that are valid files on every machine, and no second files.
        """
        inside = f"{directory}/" if directory else ""
        return [
            stat
            for stat in self._files.walk(inside)
            if matches(stat.name) and broken_rule(stat.name) is None and not is_conflict(stat.name)
        ]

    def glance(self, files: Sequence[Stat]) -> list[bytes | None]:
        """Return the bytes of small files in the given order, with None for a file that is large or gone."""
        if not files:
            return []
        with ThreadPoolExecutor(min(THREADS, len(files))) as pool:
            return list(pool.map(self._glance, files))

    def _glance(self, stat: Stat) -> bytes | None:
        if stat.size > SMALL_FILE_BYTES_MAX or stat.token is None:
            return None
        key = (stat.name, stat.token)
        with self._lock:
            if key in self._small_files:
                self._small_files.move_to_end(key)
                return self._small_files[key]
        try:
            blob = self._files.read(stat.name)
        except NotFound:
            return None
        with self._lock:
            self._small_files[stat.name, blob.token] = blob.data
            while len(self._small_files) > SMALL_FILES_CACHED:
                self._small_files.popitem(last=False)
        return blob.data
