"""A workspace that is read where it lies, in S3, without a copy on this machine.

For readers alone: there is no tree here, no history, no index and no baseline, and opening one makes
nothing on the disk and asks nothing. Each read is one request; a listing is one for each thousand names,
and ends with a refusal where there are more than the workspace may hold. What is seen is what S3 holds: what
another machine has not pushed yet is not there.

A store that does not answer is `Unavailable` to whoever reads, and to nobody else.
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

GLANCE_BYTES_MAX = 64 * 1024
"""Of a file that is read for its beginning: S3 would send all of it."""

GLANCES_KEPT = 256
"""So at most 16 MiB are kept, and an index of notes costs one listing from the second time on."""

THREADS = 16
"""Small files read at once."""


class FileListing(Protocol):
    """What is read of a place: the objects of one workspace, under limits."""

    def read(self, name: str) -> Blob:
        """NotFound, OverLimit, Unavailable."""
        ...

    def walk(self, prefix: str = "") -> Iterator[Stat]:
        """Every object, under a good name or not. OverLimit, Unavailable."""
        ...


class RemoteWorkspace:
    """Threads may share it."""

    def __init__(self, record: WorkspaceRecord, namespace: Namespace, shelf: FileListing) -> None:
        self.record = record
        self.namespace = namespace
        self._shelf = shelf
        self._glances: OrderedDict[tuple[str, Token], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str) -> File:
        path = WorkspacePath(path)
        return File(path, self._shelf.read(path).data)

    def find(self, directory: str, matches: Callable[[str], bool]) -> list[Stat]:
        """The files below a directory ("" is the root) whose path matches: what would be a file on every
        machine, without second files."""
        inside = f"{directory}/" if directory else ""
        return [
            stat
            for stat in self._shelf.walk(inside)
            if matches(stat.name) and broken_rule(stat.name) is None and not is_conflict(stat.name)
        ]

    def glance(self, files: Sequence[Stat]) -> list[bytes | None]:
        """The bytes of small files, as they were listed; None for one that is large, or is gone."""
        if not files:
            return []
        with ThreadPoolExecutor(min(THREADS, len(files))) as pool:
            return list(pool.map(self._glance, files))

    def _glance(self, stat: Stat) -> bytes | None:
        if stat.size > GLANCE_BYTES_MAX or stat.token is None:
            return None
        key = (stat.name, stat.token)
        with self._lock:
            if key in self._glances:
                self._glances.move_to_end(key)
                return self._glances[key]
        try:
            blob = self._shelf.read(stat.name)
        except NotFound:
            return None
        with self._lock:
            self._glances[stat.name, blob.token] = blob.data
            while len(self._glances) > GLANCES_KEPT:
                self._glances.popitem(last=False)
        return blob.data
