"""A cache of files that the survey has read, kept until they are sent."""

from __future__ import annotations

BYTES_MAX = 16 * 2**20
"""Limit for all cached files together. Files beyond it are read again, each when it is sent."""


class ReadCache:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._bytes_left = BYTES_MAX

    def keep(self, path: str, data: bytes) -> None:
        if len(data) <= self._bytes_left:
            self._bytes_left -= len(data)
            self.files[path] = data
