"""Captures a program's output within bounds while it streams: its head, its tail, and as much of the whole as
a reader will ever page through."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_BYTES_MAX = 5_000_000
LINE_SEARCH_BYTES_MAX = 1024
"""The most bytes that a cut moves to fall between two lines."""


@dataclass(frozen=True, slots=True)
class Captured:
    head: bytes
    tail: bytes
    """The end of the output; empty if the head holds everything."""
    whole: bytes
    """The first `WHOLE_BYTES_MAX` bytes of the output."""
    size: int
    """The size of the whole output."""

    @property
    def left_out(self) -> int:
        """Return the number of bytes between head and tail."""
        return self.size - len(self.head) - len(self.tail)


class OutputCapture:
    """The capture of a stream that arrives in pieces. It holds no more than its bounds."""

    def __init__(self, shown_bytes: int) -> None:
        self._half = shown_bytes // 2
        self._whole = bytearray()
        self._tail = bytearray()
        self.size = 0

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        self._whole += piece[: WHOLE_BYTES_MAX - len(self._whole)]
        self._tail += piece
        if len(self._tail) > 4 * self._half:  # done seldom, so that each byte is moved only once
            del self._tail[: -2 * self._half]

    def result(self) -> Captured:
        whole = bytes(self._whole)
        if self.size <= 2 * self._half:
            return Captured(bytes(self._tail), b"", whole, self.size)
        head, tail = whole[: self._half], bytes(self._tail[-self._half :])
        return Captured(_whole_lines_before(head), _whole_lines_after(tail), whole, self.size)


def _whole_lines_before(head: bytes) -> bytes:
    end = head.rfind(b"\n", len(head) - LINE_SEARCH_BYTES_MAX)
    return head if end < 0 else head[: end + 1]


def _whole_lines_after(tail: bytes) -> bytes:
    begin = tail.find(b"\n", 0, LINE_SEARCH_BYTES_MAX)
    return tail if begin < 0 else tail[begin + 1 :]
