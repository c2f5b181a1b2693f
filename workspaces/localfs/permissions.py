"""Repair the modes of a tree after a command had it to itself, and measure the tree.

A command runs as the owner of the tree. It may leave a directory that its owner cannot open, a set-id
program, a file that everybody may read, or a directory a thousand levels deep. None of these may remain
after the command. Its owner can open every directory and file. No set-id bit and no permission for the
world remains. If we run as root, everything also gets the owner of the tree's root. So the next command
can write what root put there by hand.

The same walk measures the tree: the blocks it really takes on the disk, which differ from a sparse file's
size. It also counts the content of a directory that may not be read, which it opens first.

Every step goes from one directory handle to the next and follows no link. A mode is changed through a
handle of the very file that was examined.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from workspaces.localfs.safe_open import as_failure

DEPTH_MAX = 64
"""Depth limit of the walk, deeper than any valid path. Directories below it are not entered."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_HAS_HANDLES = hasattr(os, "O_PATH")
"""True on Linux. Elsewhere no command ever runs, so there is nothing to repair."""

_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, independent of the file system's own block size."""


@dataclass(slots=True)
class DiskUsage:
    """The disk usage of a tree."""

    entries: int = 0
    """Number of files, directories and other entries."""
    bytes: int = 0
    is_opaque: bool = False
    """True if a part cannot be counted: it is too deep, or is closed again as fast as it is opened."""


def mend(root: Path) -> DiskUsage:
    """Repair the modes of a tree and, if we run as root, its owners. Return its disk usage."""
    return _Walk(is_repairing=True).run(root)


def measure(root: Path) -> DiskUsage:
    """Measure a tree, even while a command runs in it. Nothing is changed except directories that cannot be
    read."""
    return _Walk(is_repairing=False).run(root)


@dataclass(slots=True)
class _Walk:
    is_repairing: bool
    owner: tuple[int, int] | None = None
    """The owner that everything gets. None: owners are left alone."""
    usage: DiskUsage = field(default_factory=DiskUsage)

    def run(self, root: Path) -> DiskUsage:
        try:
            if not _is_open(root.lstat()):
                root.chmod(0o700)  # its parent is ours, so no other program can change the name
            fd = os.open(root, _OPEN)
        except OSError as error:
            raise as_failure(error, str(root)) from error
        try:
            status = os.fstat(fd)
            if self.is_repairing and os.geteuid() == 0:
                self.owner = (status.st_uid, status.st_gid)
            self._directory(fd, 0)
        except OSError as error:
            raise as_failure(error, str(root)) from error
        finally:
            os.close(fd)
        return self.usage

    def _directory(self, fd: int, depth: int) -> None:
        if depth > DEPTH_MAX:
            self.usage.is_opaque = True
            return
        with os.scandir(fd) as entries:
            found = [entry.name for entry in entries]
        for name in found:
            try:
                self._entry(fd, name, depth)
            except (FileNotFoundError, NotADirectoryError):  # removed since it was listed
                continue
            except PermissionError:
                self.usage.is_opaque = True

    def _entry(self, parent: int, name: str, depth: int) -> None:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        is_closed = stat.S_ISDIR(status.st_mode) and not _is_open(status)
        if self.is_repairing or is_closed:
            self._repair(parent, name, status)
        self.usage.entries += 1
        self.usage.bytes += status.st_blocks * _BLOCK_BYTES
        if not stat.S_ISDIR(status.st_mode):
            return
        fd = os.open(name, _OPEN, dir_fd=parent)
        try:
            self._directory(fd, depth + 1)
        finally:
            os.close(fd)

    def _repair(self, parent: int, name: str, status: os.stat_result) -> None:
        if not _HAS_HANDLES or (_right_mode(status) is None and not self._is_foreign(status)):
            return
        handle = os.open(name, _HANDLE, dir_fd=parent)
        try:
            status, through = os.fstat(handle), f"/proc/self/fd/{handle}"
            if self.owner is not None and self._is_foreign(status):
                os.chown(through, *self.owner)
            mode = _right_mode(status)
            if mode is not None:
                os.chmod(through, mode)  # noqa: PTH101 - no path leads to it but its handle
        finally:
            os.close(handle)

    def _is_foreign(self, status: os.stat_result) -> bool:
        is_ours = self.owner is None or (status.st_uid, status.st_gid) == self.owner
        return not is_ours and _is_of_one_name(status)


def _right_mode(status: os.stat_result) -> int | None:
    """Return the mode that an entry should have, or None if its mode is right."""
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        wanted = mode & 0o770 | 0o700
    elif _is_of_one_name(status):
        wanted = mode & 0o770 | 0o600
    elif stat.S_ISREG(status.st_mode):  # its other name may be another user's file
        wanted = mode & ~_SET_ID
    else:
        return None
    return None if wanted == mode else wanted


def _is_open(status: os.stat_result) -> bool:
    """Return True if the owner can read, write and enter it."""
    return status.st_mode & stat.S_IRWXU == stat.S_IRWXU


def _is_of_one_name(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
