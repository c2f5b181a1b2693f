"""Opening files beneath a directory without ever leaving it.

An agent owns the tree that the host reads, and may swap a directory for a symlink between any two of
the host's system calls. Checking a path and then opening it by string therefore proves nothing. Here
every open starts at a directory handle and is refused by the kernel if any component on the way is a
link: `openat2` with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS where the kernel has it, else a walk that
opens one component after the other with O_NOFOLLOW. Both give the same answers; the first is one call.

What comes out is opened non-blocking and then looked at through its own descriptor: a regular file
with exactly one link, or it is not read. (A second link would be another name for a file that may lie
elsewhere; a FIFO would make the host wait for the agent.) The count alone does not prove it: a second link
that was opened may be gone when it is counted, and what is left is the file elsewhere. So the name is
asked once more after the bytes were read: one link, and this name is it; or none at all any more.
[Without that question a process that linked and unlinked got 4 of 500 000 reads out.]

Deliberately absent: any function that takes a root as a string and joins a relative string to it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workspaces.errors import Failure, NotFound, OverLimit, Refused, Unavailable

_OPENAT2 = 437
"""The number of openat2 on every architecture that Linux has had since 5.6."""

_BENEATH_NO_SYMLINKS = 0x08 | 0x04 | 0x02  # beneath, no symlinks, no magic links
_RENAME_NOREPLACE = 1
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_AS_LINK_OR_NOT_A_DIRECTORY = {errno.ELOOP, errno.ENOTDIR, errno.EXDEV}
_TRIES_MAX = 100
"""openat2 answers EAGAIN when a rename elsewhere raced with it; a hundred in a row is an attack."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Beneath:
    """A directory handle, and opens that stay beneath it. Threads may share it."""

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._fd = os.open(root, _DIRECTORY | os.O_CLOEXEC)
        self._openat2 = _kernel_has_openat2(self._fd) if openat2 is None else openat2

    def close(self) -> None:
        os.close(self._fd)

    def is_at(self, path: Path) -> bool:
        """Whether `path` still names this directory: it may have been moved away, or replaced."""
        try:
            found = path.lstat()
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    @contextmanager
    def directory(self, path: str, *, create: bool = False) -> Generator[int]:
        """A descriptor of the directory `path` (`""` is the root), made on the way if asked for."""
        fd = self._opened_or_made(path) if create else self._opened_directory(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, path: str, *, bytes_max: int) -> tuple[bytes, os.stat_result]:
        """A regular file's bytes and what its descriptor says of it. NotFound, Refused, OverLimit."""
        for _ in range(_TRIES_MAX):
            found = self._read_once(path, bytes_max)
            if found is not None:
                return found
        raise Unavailable(repr(path), "its names change faster than it can be read")

    def _read_once(self, path: str, bytes_max: int) -> tuple[bytes, os.stat_result] | None:
        """None when the file may have another name."""
        try:
            fd = self._open(path, os.O_RDONLY)
        except OSError as error:
            raise as_failure(error, path) from error
        try:
            status = os.fstat(fd)
            check_regular(status, path)
            if status.st_size > bytes_max:
                raise OverLimit(
                    f"size of {path!r}", maximum=bytes_max, actual=status.st_size, unit="bytes"
                )
            data = _read_all(fd, status.st_size, bytes_max)
            is_ours = self._is_the_name_of(fd, path) or os.fstat(fd).st_nlink == 0
            return (data, status) if is_ours else None
        except OSError as error:
            raise as_failure(error, path) from error
        finally:
            os.close(fd)

    def _is_the_name_of(self, fd: int, path: str) -> bool:
        """Whether `path` names what was opened, and nothing else does."""
        directory, _, leaf = path.rpartition("/")
        try:
            with self.directory(directory) as parent:
                named = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return False
        opened = os.fstat(fd)
        is_same = (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
        return is_same and named.st_nlink == 1

    def _opened_or_made(self, path: str) -> int:
        try:
            return self._opened_directory(path)
        except FileNotFoundError:
            self._make_directories(path)
            return self._opened_directory(path)

    def _opened_directory(self, path: str) -> int:
        return self._open(path, _DIRECTORY) if path else os.dup(self._fd)

    def _make_directories(self, path: str) -> None:
        """Each missing directory on the way, durable before anything is put into it."""
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            with self.directory("/".join(parts[: depth - 1])) as parent:
                try:
                    os.mkdir(parts[depth - 1], 0o700, dir_fd=parent)
                except FileExistsError:
                    continue
                os.fsync(parent)

    def _open(self, path: str, flags: int) -> int:
        if self._openat2:
            return _openat2(self._fd, path, flags | _ALWAYS)
        return _walk(self._fd, path, flags | _ALWAYS)


def check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("path", path, "is not a regular file")
    if status.st_nlink > 1:
        raise Refused("path", path, "has a second link, which may be another file's name")


def rename_new(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Rename, failing with FileExistsError instead of replacing anything."""
    result = _libc.renameat2(
        source_fd, os.fsencode(source), target_fd, os.fsencode(target), _RENAME_NOREPLACE
    )
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def as_failure(error: OSError, path: str) -> Failure:
    """What an error of the file system means to someone who named `path`."""
    if error.errno == errno.ENOENT:
        return NotFound("file", path)
    if error.errno in _AS_LINK_OR_NOT_A_DIRECTORY:
        return Refused(
            "path", path, "leads through a link or through something that is no directory"
        )
    if error.errno in {errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY}:
        return Refused("path", path, "is not a regular file")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable(repr(path), "the disk is full", remedy="free some space and try again")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return Unavailable(
            repr(path), f"not permitted ({error.strerror})", remedy="check who owns the home"
        )
    return Unavailable(repr(path), error.strerror or str(error))


def _read_all(fd: int, size: int, bytes_max: int) -> bytes:
    """Everything up to the end, which may have moved since `size` was asked for."""
    chunks: list[bytes] = []
    left = bytes_max + 1
    while chunk := os.read(fd, min(left, max(size, 4096) + 1)):
        chunks.append(chunk)
        left -= len(chunk)
        if left <= 0:
            raise OverLimit("size", maximum=bytes_max, actual=bytes_max + 1 - left, unit="bytes")
    return b"".join(chunks)


def _openat2(root: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _BENEATH_NO_SYMLINKS)
    encoded = os.fsencode(path)
    code = errno.EAGAIN
    for _ in range(_TRIES_MAX):
        fd = _libc.syscall(_OPENAT2, root, encoded, ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code), path)


def _walk(root: int, path: str, flags: int) -> int:
    *parents, last = path.split("/")
    here = os.dup(root)
    try:
        for part in parents:
            below = os.open(part, _DIRECTORY | _ALWAYS, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, flags, dir_fd=here)
    finally:
        os.close(here)


def _kernel_has_openat2(root: int) -> bool:
    try:
        os.close(_openat2(root, ".", _DIRECTORY | _ALWAYS))
    except OSError:
        return False
    return True
