"""Check the quota of a workspace: is there room for a write?

A scan counts files and bytes. Then our own writes keep the count up to date, for a minute. A quota keeps a
workspace from growing without bound and need not be exact to the byte. Files that other programs put into
the tree beyond the quota stay where they are, and the scan lists them.
"""

from __future__ import annotations

from workspaces.clock import Clock
from workspaces.errors import OverLimit
from workspaces.paths import WorkspacePath
from workspaces.quota_limits import QuotaLimits
from workspaces.storage.blobs import Blob
from workspaces.tree.scan import ScanResult, TreeScan

COUNT_AGAIN_S = 60.0


class QuotaCheck:
    def __init__(self, quota: QuotaLimits, clock: Clock, tree: TreeScan) -> None:
        self._quota = quota
        self._clock = clock
        self._tree = tree
        self._counted: ScanResult | None = None
        """The scan from which the counts are."""
        self._files, self._bytes = 0, 0

    def check_file(self, path: WorkspacePath, data: bytes) -> None:
        maximum = self._quota.file_bytes
        if len(data) > maximum:
            raise OverLimit(f"size of {path!r}", maximum=maximum, actual=len(data), unit="bytes")

    def take(self, data: bytes, current: Blob | None) -> None:
        """Reserve room for a file to become `data`.

        Raises: OverLimit when the workspace has no room for it.
        """
        newest = self._tree.newest
        if newest is None or self._clock.monotonic() - newest.at > COUNT_AGAIN_S:
            self._tree.scan()
            newest = self._tree.newest
        if newest is not None and newest is not self._counted:
            self._files, self._bytes = len(newest.tree.files), newest.tree.bytes
            self._counted = newest
        files = self._files + (1 if current is None else 0)
        size = self._bytes + len(data) - (len(current.data) if current else 0)
        for noun, unit, maximum, actual in (
            ("files", "files", self._quota.files, files),
            ("size", "bytes", self._quota.bytes, size),
        ):
            if actual > maximum:
                raise OverLimit(
                    f"{noun} of the workspace", maximum=maximum, actual=actual, unit=unit
                )
        self._files, self._bytes = files, size
