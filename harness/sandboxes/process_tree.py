"""Finds, measures and ends the processes of one sandbox, as the host sees them.

A sandbox is one process of ours (bubblewrap), which has one child: process 1 of the namespace inside. A
process inside that loses its parent becomes a child of process 1. So all processes inside are its
descendants. When process 1 dies, the kernel ends all others before any process can see that death.
"""

from __future__ import annotations

import os
import signal
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PAGES = ("RssAnon:", "RssShmem:")
"""The fields of a process's own memory; pages of programs and libraries are shared by all."""

_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Taken:
    processes: int
    memory_bytes: int
    unlinked_bytes: int
    """The size of deleted files that a process still holds open: no walk through a tree finds them."""


def taken_by(ancestor: int, devices: frozenset[int]) -> Taken:
    """Return the resources of all descendants of a process. Deleted files count only on these devices."""
    pids = _descendants(ancestor)
    unlinked: dict[tuple[int, int], int] = {}
    for pid in pids:
        unlinked |= _unlinked(pid, devices)
    return Taken(len(pids), sum(map(_memory, pids)), sum(unlinked.values()))


def kill_child(parent: int) -> bool:
    """End the only child of a single-threaded process, and with it all below. Return False if there is
    none."""
    for child in _children(parent, parent):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(child)
            try:  # the pid may have been reused before it was opened
                if child in _children(parent, parent):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
        return True
    return False


def _descendants(ancestor: int) -> list[int]:
    result: list[int] = []
    pending = [ancestor]
    while pending:
        pid = pending.pop()
        for thread in _names(_PROC / f"{pid}/task"):
            children = _children(pid, int(thread))
            result += children
            pending += children
    return result


def _children(pid: int, thread: int) -> list[int]:
    try:
        text = (_PROC / f"{pid}/task/{thread}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def _memory(pid: int) -> int:
    try:
        lines = (_PROC / f"{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_PAGES))


def _unlinked(pid: int, devices: frozenset[int]) -> dict[tuple[int, int], int]:
    """Return the deleted files that a process holds open, as far as they can be seen."""
    sizes: dict[tuple[int, int], int] = {}
    for name in _names(_PROC / f"{pid}/fd"):
        with suppress(OSError):
            status = (_PROC / f"{pid}/fd/{name}").stat()
            is_nameless = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
            if is_nameless and status.st_dev in devices:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return sizes


def _names(directory: Path) -> list[str]:
    """Return the names in a directory; none if the process has ended."""
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are enough
    except OSError:
        return []
