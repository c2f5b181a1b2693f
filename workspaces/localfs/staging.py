"""The place aside: where what goes into a directory is made ready, and what came out of it lies.

It is on the same file system as the directory and outside of it, so that one move brings a file in, whole.

    new-…     about to be written, or just replaced: one write's
    come-…    staged while more is on its way; only one at a time stages, and removes what another has left
    out:…     displaced, until it is looked at once more (`live` says by what label)
    .lock     orders the conditional writes of all threads and processes that come through one store

A writer that was killed leaves its temporary file behind. Opening removes those older than a day: no write
takes that long, nor what a write waits for, and age can be told where processes cannot (several containers
may share a home). Should a clock jump make a live one look old, its write fails and says so.
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
"""From so many files on, one flush of the whole file system is sooner done than one of each."""


class Staging:
    """OSError says what failed; whoever calls knows what it was for. Unavailable where the place is gone."""

    def __init__(
        self, directory: Path, *, owner: Callable[[], tuple[int, int] | None], bytes_max: int
    ) -> None:
        """`owner`: whom root gives what it makes here."""
        self._fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._closing = finalize(self, os.close, self._fd)  # by `close`, or as that of `SafeRoot`
        self._owner = owner
        self._bytes_max = bytes_max
        self._sweep()

    def close(self) -> None:
        self._closing()

    def put(self, data: bytes, prefix: str = TEMPORARY_PREFIX, *, flush: bool = True) -> str:
        """Under a new name, which is returned."""
        name = fresh(prefix)
        try:
            with self._made(name) as fd:
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
        """Of what was put here without."""
        if len(names) >= FLUSHED_AT_ONCE and self.flush_all():
            return
        for name in names:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def flush_all(self) -> bool:
        """The whole file system; False where the system cannot."""
        return flush_all(self._fd)

    def read(self, name: str) -> bytes | None:
        """None for what is no file of ours to read."""
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
        with self._listed() as entries:
            return [entry.name for entry in entries if entry.name.startswith(prefix)]

    def rename(self, name: str, new: str) -> None:
        os.rename(name, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def rename_new(self, name: str, new: str) -> None:
        """FileExistsError instead of replacing anything."""
        rename_new(self._fd, name, self._fd, new)

    def discard(self, name: str) -> None:
        with suppress(OSError):  # what went wrong before is what matters; the sweep will find it
            os.unlink(name, dir_fd=self._fd)

    # In and out, of a directory that is open.

    def replace(self, name: str, directory: int, leaf: str) -> None:
        """In, whatever is there."""
        os.rename(name, leaf, src_dir_fd=self._fd, dst_dir_fd=directory)

    def enter(self, name: str, directory: int, leaf: str) -> None:
        """In; FileExistsError where something is."""
        rename_new(self._fd, name, directory, leaf)

    def take(self, directory: int, leaf: str, name: str) -> None:
        """Out."""
        rename_new(directory, leaf, self._fd, name)

    def exchange(self, name: str, directory: int, leaf: str) -> bool:
        """In and out in one step; False where the file system cannot."""
        return exchange(self._fd, name, directory, leaf)

    @contextmanager
    def locked(self) -> Generator[None]:
        fd = self._opened(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):  # closing releases it too, unless a forked child has a copy
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    @contextmanager
    def _made(self, name: str) -> Generator[int]:
        fd = self._opened(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        try:
            if (owner := self._owner()) is not None:
                os.fchown(fd, *owner)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _listed(self) -> Generator[Iterator[os.DirEntry[str]]]:
        """Through a handle of its own: two who list through the same one see a part each."""
        fd = self._opened(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(fd) as entries:
                yield entries
        finally:
            os.close(fd)

    def _opened(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags, 0o600, dir_fd=self._fd)
        except FileNotFoundError as error:  # only if the directory itself was removed
            raise Unavailable(
                "staging", "the directory is gone", remedy="restart what was using this home"
            ) from error

    def _sweep(self) -> None:
        old = time.time() - LEFTOVER_AGE_S
        # What cannot be swept today is no reason not to open.
        with suppress(OSError), self._listed() as entries:
            for entry in entries:
                if not entry.name.startswith((TEMPORARY_PREFIX, STAGED_PREFIX)):
                    continue
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < old:
                        self.discard(entry.name)


def fresh(prefix: str = TEMPORARY_PREFIX) -> str:
    return prefix + secrets.token_hex(8)
