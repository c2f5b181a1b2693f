"""Manage the staging directory: new files are prepared there, and replaced files lie there.

It is on the same file system as the live directory and outside of it. So one move brings in a complete file.

    new-…     about to be written, or just replaced, by one write
    come-…    staged while more files are on their way; one process at a time stages and removes others
    out:…     displaced, until it is checked once more (`port` defines the label)
    .lock     orders the conditional writes of all threads and processes that use one store

A writer that was killed leaves its temporary file behind. Opening removes files older than a day. No write
takes that long, nor does the wait before a write. Age works where processes cannot be identified: several
containers may share a home. If a clock jump makes a live file look old, its write fails and reports it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import finalize

from workspaces.errors import OverLimit, Unavailable
from workspaces.localfs.safe_open import exchange, flush_all, read_all, rename_new

LOCK_NAME = ".lock"
TEMPORARY_PREFIX = "new-"
STAGED_PREFIX = "come-"
LEFTOVER_AGE_S = 24 * 3600
FLUSHED_AT_ONCE = 16
"""Number of files from which one flush of the whole file system is faster than a flush of each file."""


class Staging:
    """A staging directory. OSError says what failed, and the caller knows for which path. Unavailable is
    raised when the directory is gone."""

    def __init__(
        self, directory: Path, *, owner: Callable[[], tuple[int, int] | None], bytes_max: int
    ) -> None:
        """`owner` returns the owner of new files if we run as root."""
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Closed by `close`, or by the garbage collector, as in `SafeRoot`.
        self._closing = finalize(self, os.close, self._fd)
        self._owner = owner
        self._bytes_max = bytes_max
        self._remove_leftovers()

    def close(self) -> None:
        self._closing()

    def put(self, data: bytes, prefix: str = TEMPORARY_PREFIX, *, flush: bool = True) -> str:
        """Write a file under a new name, and return the name."""
        name = fresh(prefix)
        try:
            with self._new_file(name) as fd:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                if flush:
                    os.fsync(fd)
        except BaseException:
            self.discard(name)
            raise
        return name

    def flush(self, names: Collection[str]) -> None:
        """Make files durable that were put here without a flush."""
        if len(names) >= FLUSHED_AT_ONCE and self.flush_all():
            return
        for name in names:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def flush_all(self) -> bool:
        """Flush the whole file system. Return False if the system cannot."""
        return flush_all(self._fd)

    def read(self, name: str) -> bytes | None:
        """Read a file. Return None if it is not a file we can read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link or a socket was put there
                return None
            raise
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                return None
            return read_all(fd, status.st_size, self._bytes_max)
        except OverLimit:
            return None
        finally:
            os.close(fd)

    def names(self, prefix: str) -> list[str]:
        with self._list() as entries:
            return [entry.name for entry in entries if entry.name.startswith(prefix)]

    def rename(self, name: str, new: str) -> None:
        os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def rename_new(self, name: str, new: str) -> None:
        """Rename, with FileExistsError instead of replacing anything."""
        rename_new(self._fd, name, self._fd, new)

    def discard(self, name: str) -> None:
        with suppress(OSError):  # the earlier error matters more; a later start removes the file
            os.unlink(name, dir_fd=self._fd)

    # Moves between this directory and another one that is open.

    def replace(self, name: str, directory: int, leaf: str) -> None:
        """Move a file into the directory, replacing any file there."""
        os.rename(name, leaf, src_dir_fd=self._fd, dst_dir_fd=directory)

    def enter(self, name: str, directory: int, leaf: str) -> None:
        """Move a file into the directory.

        Raises: FileExistsError when the name is taken.
        """
        rename_new(self._fd, name, directory, leaf)

    def take(self, directory: int, leaf: str, name: str) -> None:
        """Move a file out of the directory."""
        rename_new(directory, leaf, self._fd, name)

    def exchange(self, name: str, directory: int, leaf: str) -> bool:
        """Exchange a file here with one in the directory, in one step. Return False if the file system
        cannot."""
        return exchange(self._fd, name, directory, leaf)

    @contextmanager
    def locked(self) -> Generator[None]:
        fd = self._open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):  # closing releases it too, unless a forked child has a copy
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    @contextmanager
    def _new_file(self, name: str) -> Generator[int]:
        fd = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        try:
            if (owner := self._owner()) is not None:
                os.fchown(fd, *owner)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _list(self) -> Generator[Iterator[os.DirEntry[str]]]:
        """List through a handle of its own. Two threads that list through the same handle see only a part
        each."""
        fd = self._open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags, 0o600, dir_fd=self._fd)
        except FileNotFoundError as error:  # only if the directory itself was removed
            raise Unavailable(
                "staging", "the directory is gone", remedy="restart the program that uses this home"
            ) from error

    def _remove_leftovers(self) -> None:
        old = time.time() - LEFTOVER_AGE_S
        # A leftover that cannot be removed now is no reason not to open.
        with suppress(OSError), self._list() as entries:
            for entry in entries:
                if not entry.name.startswith((TEMPORARY_PREFIX, STAGED_PREFIX)):
                    continue
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        self.discard(entry.name)


def fresh(prefix: str = TEMPORARY_PREFIX) -> str:
    return prefix + secrets.token_hex(8)
