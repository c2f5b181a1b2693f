"""The quota of a workspace: whether there is room for what somebody wants to write.

Files and bytes are counted by a scan and then kept up to date with our own writes, for a minute: a
quota keeps a workspace from growing without bound and need not be exact to the byte. What others put
into the tree past it is left where it is, and listed by the scan.
"""

from __future__ import annotations

from collections.abc import Callable

from workspaces.clock import Clock
from workspaces.errors import OverLimit
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import Blob
from workspaces.tree.scan import Tree
from workspaces.workspace_record import Quota

COUNT_AGAIN_S = 60.0


class QuotaCheck:
    def __init__(self, quota: Quota, clock: Clock, scan: Callable[[], Tree]) -> None:
        self._quota = quota
        self._clock = clock
        self._scan = scan
        self._files, self._bytes = 0, 0
        self._counted_at: float | None = None

    def counted(self, tree: Tree) -> None:
        """What a scan has found, whoever asked for it."""
        self._files, self._bytes = len(tree.files), tree.bytes
        self._counted_at = self._clock.monotonic()

    def check_file(self, path: WorkspacePath, data: bytes) -> None:
        maximum = self._quota.file_bytes
        if len(data) > maximum:
            raise OverLimit(f"size of {path!r}", maximum=maximum, actual=len(data), unit="bytes")

    def take(self, data: bytes, current: Blob | None) -> None:
        """Room for a file to become `data`. OverLimit."""
        now = self._clock.monotonic()
        if self._counted_at is None or now - self._counted_at > COUNT_AGAIN_S:
            self.counted(self._scan())
        files = self._files + (1 if current is None else 0)
        size = self._bytes + len(data) - (len(current.data) if current else 0)
        for what, unit, maximum, actual in (
            ("files", "files", self._quota.files, files),
            ("size", "bytes", self._quota.bytes, size),
        ):
            if actual > maximum:
                raise OverLimit(
                    f"{what} of the workspace", maximum=maximum, actual=actual, unit=unit
                )
        self._files, self._bytes = files, size
