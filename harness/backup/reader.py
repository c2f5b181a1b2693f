"""Read the files of a home for a backup, while other programs write them.

An agent owns the trees that are read. So every open is beneath a directory handle and follows no link. Only
regular files are read, and in a tree only those with a single link (`safe_open` tells why). What is left out
is named. A file that vanishes while it is read is gone; one that changes is marked to be read again.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from harness.backup.depot import PieceWriter
from harness.backup.listing import (
    MODES,
    PATH_BYTES_MAX,
    PIECE_BYTES_MAX,
    FileSignature,
    Listed,
    ListedDirectory,
    ListedFile,
    Range,
)
from workspaces.localfs.safe_open import as_failure

YOUNG_S = 1.0
"""A file that changed within this time before it was read may change again without a new time: file systems
count in steps, of up to a second."""

PRIVATE = 0o600

DEPTH_MAX = 128
"""Deeper than any valid path, so that a walk ends even in the tree of a loop that makes directories."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}

OnBytes = Callable[[int], None]
"""Hears of the bytes of each file that was looked at."""


class HomeReader:
    """Reads files into pieces. A file that is known with the same signature is not read."""

    def __init__(
        self, root: Path, writer: PieceWriter, known: Mapping[str, Listed], on_bytes: OnBytes
    ) -> None:
        """`known` are the files of an earlier backup."""
        self.left_out: set[str] = set()
        """The paths that cannot be in a backup: links, sockets and the like."""
        self._root = root
        self._writer = writer
        self.known = known
        self._on_bytes = on_bytes

    def take(
        self,
        path: str,
        *,
        earlier: Mapping[str, Listed] = MappingProxyType({}),
        leaves_out: Callable[[str], bool] = lambda _: False,
        one_link: bool = False,
    ) -> dict[str, Listed]:
        """Read a directory with everything below it, or one file. Return nothing if there is none.

        `earlier` is what an earlier pass of this backup returned. `leaves_out` returns True for the names of
        entries, in any depth, that are no part of a backup. With `one_link`, files with several links are
        left out.

        Raises: Unavailable.
        """
        parent, _, name = path.rpartition("/")
        walk = _Walk(self, lambda at: earlier.get(at) or self.known.get(at), leaves_out, one_link)
        try:
            with _opened(self._root / parent, _DIRECTORY) as directory:
                walk.entry(directory, name, path, 0)
        except OSError as error:
            if error.errno not in _GONE:
                raise as_failure(error, path) from error
        return walk.listed

    def made(self, path: str, data: bytes) -> ListedFile:
        """Return a file that was made for the backup."""
        return ListedFile(path, PRIVATE, len(data), 0, self._writer.alone(data))

    def store(self, fd: int) -> tuple[tuple[Range, ...], int]:
        """Store the bytes of an open file. Return their places and their number."""
        ranges = self._writer.write(_chunks(fd))
        size = sum(one.size for one in ranges)
        self._on_bytes(size)
        return ranges, size

    def copied(self, path: str, file: Path) -> ListedFile:
        """Return a file under another path than its own."""
        try:
            with _opened(file, _FILE) as fd:
                ranges, size = self.store(fd)
        except OSError as error:
            raise as_failure(error, path) from error
        return ListedFile(path, PRIVATE, size, 0, ranges)


class _Walk:
    """One look at a directory with everything below it."""

    def __init__(
        self,
        reader: HomeReader,
        known: Callable[[str], Listed | None],
        leaves_out: Callable[[str], bool],
        one_link: bool,
    ) -> None:
        self.listed: dict[str, Listed] = {}
        self._reader = reader
        self._known = known
        self._one_link = one_link
        self._leaves_out = leaves_out

    def entry(self, parent: int, name: str, path: str, depth: int) -> None:
        if self._leaves_out(name):
            return
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            is_directory = stat.S_ISDIR(status.st_mode)
            is_valid = depth <= DEPTH_MAX and len(path) <= PATH_BYTES_MAX
            if is_valid and is_directory:
                self._directory(parent, name, path, depth)
            elif is_valid and stat.S_ISREG(status.st_mode):
                self._file(parent, name, path, status)
            else:
                self._reader.left_out.add(path)
        except OSError as error:
            if error.errno not in _GONE:
                raise

    def _directory(self, parent: int, name: str, path: str, depth: int) -> None:
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            mode = os.fstat(fd).st_mode & MODES
            self.listed[path] = ListedDirectory(path, mode)
            for entry in sorted(os.listdir(fd)):  # noqa: PTH208 - through its handle
                self.entry(fd, entry, f"{path}/{entry}", depth + 1)
        finally:
            os.close(fd)

    def _file(self, parent: int, name: str, path: str, status: os.stat_result) -> None:
        known = self._known(path)
        if isinstance(known, ListedFile) and known.signature == _signature(status):
            self.listed[path] = known  # a new mode is a new ctime, so it is in the signature
            return
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            before = os.fstat(fd)
            named = os.stat(name, dir_fd=parent, follow_symlinks=False)
            is_other = not stat.S_ISREG(before.st_mode) or (
                self._one_link and (before.st_nlink > 1 or not os.path.samestat(before, named))
            )
            if is_other:
                self._reader.left_out.add(path)
                return
            began = time.time()
            ranges, size = self._reader.store(fd)
            signature, after = _signature(before), _signature(os.fstat(fd))
            is_young = before.st_ctime > began - YOUNG_S
            is_known = signature == after and size == before.st_size and not is_young
            self.listed[path] = ListedFile(
                path,
                before.st_mode & MODES,
                size,
                before.st_mtime_ns,
                ranges,
                signature if is_known else None,
            )
        finally:
            os.close(fd)


@contextmanager
def _opened(place: Path, flags: int) -> Generator[int]:
    fd = os.open(place, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def _chunks(fd: int) -> Iterator[bytes]:
    """Yield chunks of PIECE_BYTES_MAX, and a last one that may be shorter."""
    while True:
        parts: list[bytes] = []
        size = 0
        while size < PIECE_BYTES_MAX and (part := os.read(fd, PIECE_BYTES_MAX - size)):
            parts.append(part)
            size += len(part)
        if parts:
            yield b"".join(parts)
        if size < PIECE_BYTES_MAX:
            return


def _signature(status: os.stat_result) -> FileSignature:
    return FileSignature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
