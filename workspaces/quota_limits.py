"""The limits of one workspace, and their defaults."""

from __future__ import annotations

from typing import Protocol

QUOTA_BYTES = 50_000_000
QUOTA_FILES = 10_000
QUOTA_FILE_BYTES = 5_000_000


class QuotaLimits(Protocol):
    """The limits of one workspace."""

    @property
    def bytes(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
