"""The processes of one sandbox as the host sees them: who they are, what they take, ending them.

A sandbox is one process of ours (bubblewrap), which has one child: process 1 of the namespace inside.
Whoever loses his parent in there becomes a child of process 1, so all of them are its descendants; and
when it dies the kernel ends all the others before anybody can learn of its death.
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
"""Memory that is the process's own doing; pages of programs and libraries are shared by all."""

_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Taken:
    processes: int
    memory_bytes: int
    unlinked_bytes: int
    """Files without a name that somebody still holds open: no walk through a tree finds them."""


def taken_by(ancestor: int, devices: frozenset[int]) -> Taken:
    """What the descendants of a process take now; unlinked files only of these devices."""
    pids = _descendants(ancestor)
    unlinked: dict[tuple[int, int], int] = {}
    for pid in pids:
        unlinked |= _unlinked(pid, devices)
    return Taken(len(pids), sum(map(_memory, pids)), sum(unlinked.values()))


def kill_child(parent: int) -> bool:
    """End the one child of a process of one thread, and with it all below; False while there is none."""
    for child in _children(parent, parent):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(child)
            try:  # the number may have become somebody else's before it was opened
                if child in _children(parent, parent):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
        return True
    return False


def _descendants(ancestor: int) -> list[int]:
    found: list[int] = []
    left = [ancestor]
    while left:
        pid = left.pop()
        for thread in _names(_PROC / f"{pid}/task"):
            born = _children(pid, int(thread))
            found += born
            left += born
    return found


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
    """The files without a name that a process holds open, as far as it can be seen."""
    found: dict[tuple[int, int], int] = {}
    for name in _names(_PROC / f"{pid}/fd"):
        with suppress(OSError):
            status = (_PROC / f"{pid}/fd/{name}").stat()
            is_nameless = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
            if is_nameless and status.st_dev in devices:
                found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK_BYTES
    return found


def _names(directory: Path) -> list[str]:
    """Of what is in it; nothing when the process has ended."""
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are enough
    except OSError:
        return []
