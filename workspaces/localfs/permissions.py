"""Upkeep of a tree that a command had to itself: its modes put right, its size measured.

Whoever runs in a tree owns it, and may leave behind a directory that its owner cannot open, a program
that runs as somebody else, a file that everybody may read, a directory a thousand levels deep. After a
command nothing of that may stand: directories and files can be opened by their owner, carry no set-id
bit and none for the world. Run as root everything belongs to the owner of the tree's root as well, so
that what root put there by hand can be written by the next command.

The same walk counts what is there: what a tree really takes from the disk, which a sparse file does
not, and what is hidden in a directory that may not be read, which is opened first.

Every step goes from one directory handle to the next and follows no link; a mode is changed through a
handle of the very file that was looked at.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from workspaces.localfs.safe_open import as_failure

DEPTH_MAX = 64
"""Deeper than any valid path. What lies below is not walked into."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_HAS_HANDLES = hasattr(os, "O_PATH")
"""Linux. Elsewhere no command ever runs, and there is nothing to put right."""

_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own block is."""


@dataclass(slots=True)
class DiskUsage:
    """What a tree takes."""

    entries: int = 0
    """Files, directories and whatever else."""
    bytes: int = 0
    is_opaque: bool = False
    """Something in it cannot be counted: too deep, or closed again as fast as it is opened."""


def mend(root: Path) -> DiskUsage:
    """Put the modes, and as root the owners, of a tree right."""
    return _Walk(is_mending=True).run(root)


def measure(root: Path) -> DiskUsage:
    """Count a tree, also while somebody is at work in it. Nothing is changed but what hides from it."""
    return _Walk(is_mending=False).run(root)


@dataclass(slots=True)
class _Walk:
    is_mending: bool
    owner: tuple[int, int] | None = None
    """Whom all shall belong to; None: that is left alone."""
    extent: DiskUsage = field(default_factory=DiskUsage)

    def run(self, root: Path) -> DiskUsage:
        try:
            if not _is_open(root.lstat()):
                root.chmod(0o700)  # its parent is ours: the name leads where it always led
            fd = os.open(root, _OPEN)
        except OSError as error:
            raise as_failure(error, str(root)) from error
        try:
            status = os.fstat(fd)
            if self.is_mending and os.geteuid() == 0:
                self.owner = (status.st_uid, status.st_gid)
            self._directory(fd, 0)
        except OSError as error:
            raise as_failure(error, str(root)) from error
        finally:
            os.close(fd)
        return self.extent

    def _directory(self, fd: int, depth: int) -> None:
        if depth > DEPTH_MAX:
            self.extent.is_opaque = True
            return
        with os.scandir(fd) as entries:
            found = [entry.name for entry in entries]
        for name in found:
            try:
                self._entry(fd, name, depth)
            except (FileNotFoundError, NotADirectoryError):  # gone since it was listed
                continue
            except PermissionError:
                self.extent.is_opaque = True

    def _entry(self, parent: int, name: str, depth: int) -> None:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        is_closed = stat.S_ISDIR(status.st_mode) and not _is_open(status)
        if self.is_mending or is_closed:
            self._mend(parent, name, status)
        self.extent.entries += 1
        self.extent.bytes += status.st_blocks * _BLOCK_BYTES
        if not stat.S_ISDIR(status.st_mode):
            return
        fd = os.open(name, _OPEN, dir_fd=parent)
        try:
            self._directory(fd, depth + 1)
        finally:
            os.close(fd)

    def _mend(self, parent: int, name: str, status: os.stat_result) -> None:
        if not _HAS_HANDLES or (_mended(status) is None and not self._is_foreign(status)):
            return
        handle = os.open(name, _HANDLE, dir_fd=parent)
        try:
            status, through = os.fstat(handle), f"/proc/self/fd/{handle}"
            if self.owner is not None and self._is_foreign(status):
                os.chown(through, *self.owner)
            mode = _mended(status)
            if mode is not None:
                os.chmod(through, mode)  # noqa: PTH101 - no path leads to it but its handle
        finally:
            os.close(handle)

    def _is_foreign(self, status: os.stat_result) -> bool:
        is_ours = self.owner is None or (status.st_uid, status.st_gid) == self.owner
        return not is_ours and _is_of_one_name(status)


def _mended(status: os.stat_result) -> int | None:
    """The mode that something should have; None when it is well as it is."""
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        wanted = mode & 0o770 | 0o700
    elif _is_of_one_name(status):
        wanted = mode & 0o770 | 0o600
    elif stat.S_ISREG(status.st_mode):  # its other name may be somebody's elsewhere
        wanted = mode & ~_SET_ID
    else:
        return None
    return None if wanted == mode else wanted


def _is_open(status: os.stat_result) -> bool:
    """To its owner."""
    return status.st_mode & stat.S_IRWXU == stat.S_IRWXU


def _is_of_one_name(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
