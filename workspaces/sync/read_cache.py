"""What was read to see what it is, and is kept until it is sent."""

from __future__ import annotations

BYTES_MAX = 16 * 2**20
"""Of all files together. What is beyond is read again, each file in its turn."""


class ReadCache:
    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._room = BYTES_MAX

    def keep(self, path: str, data: bytes) -> None:
        if len(data) <= self._room:
            self._room -= len(data)
            self._files[path] = data

    def find(self, path: str) -> bytes | None:
        return self._files.get(path)
