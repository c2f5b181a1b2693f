"""Open files below a directory without ever leaving it.

An agent owns the tree that the host reads. It may replace a directory by a symlink between any two of the
host's system calls. So it proves nothing to check a path and then open it by string. Here every open starts
at a directory handle, and the kernel refuses it if any component on the way is a link. Where the kernel has
`openat2`, this is RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS. Elsewhere a walk opens one component after the
other with O_NOFOLLOW. Both give the same answers; the first is one call. A file is opened in its own
directory: one name, in a handle that was reached in this way, with O_NOFOLLOW. So no link can be on the way.
A handle stays the same directory, even if another entry takes its name. So files of one directory are read
through one handle.

A file is opened non-blocking and then examined through its own descriptor. It is read only if it is a
regular file with exactly one link. (A second link would be another name of a file that may lie elsewhere. A
FIFO would make the host wait for the agent.) One link is not enough. If the name in the tree was removed
between the open and the check, the remaining link is the other name. So the name is looked up again. It must
lead to the same file, unchanged since (making or removing a link changes a file's ctime). The exception is
a file without any name: it belonged to the tree and was replaced.
[Without this check, a process that linked and unlinked got 4 of 500 000 reads out.]

Deliberately absent: any function that takes a root as a string and joins a relative string to it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from weakref import finalize

from workspaces.errors import Failure, NotFound, OverLimit, Refused, Unavailable

_OPENAT2 = 437
"""The number of openat2 on every architecture, since Linux 5.6."""

_BENEATH_NO_SYMLINKS = 0x08 | 0x04 | 0x02  # beneath, no symlinks, no magic links
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_AS_LINK_OR_NOT_A_DIRECTORY = {errno.ELOOP, errno.ENOTDIR, errno.EXDEV}
_TRIES_MAX = 100
"""Limit of attempts. An entry may change between two system calls; a hundred times in a row is an attack."""

_libc = ctypes.CDLL(None, use_errno=True)

Examined = tuple[bytes, os.stat_result]
"""A regular file's bytes, and the stat of its descriptor."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class SafeRoot:
    """A directory handle, and opens that stay below it. Threads may share it.

    `close` closes it, or the garbage collector does. When a workspace is deleted, other threads may still
    read it, and none of them can know that it is the last.
    """

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._fd = os.open(root, _DIRECTORY | os.O_CLOEXEC)
        self._closing = finalize(self, os.close, self._fd)
        self._openat2 = _kernel_has_openat2(self._fd) if openat2 is None else openat2

    def close(self) -> None:
        self._closing()

    def is_at(self, path: Path) -> bool:
        """Return True if `path` still names this directory. It may have been moved away or replaced."""
        try:
            status = path.lstat()
        except OSError:
            return False
        own = os.fstat(self._fd)
        return (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)

    @property
    def owner(self) -> tuple[int, int] | None:
        """Return the owner for entries that root makes here: the directory's owner. None: the owner is not
        changed."""
        if os.geteuid() != 0:
            return None
        status = os.fstat(self._fd)
        return (status.st_uid, status.st_gid) if status.st_uid else None

    def identity(self) -> str:
        """Return the device and inode of this directory."""
        mine = os.fstat(self._fd)
        return f"{mine.st_dev}:{mine.st_ino}"

    @contextmanager
    def directory(
        self, path: str, *, create: bool = False, made_in: set[str] | None = None
    ) -> Generator[int]:
        """Open the directory `path` (`""` is the root) and give its descriptor. With `create`, make missing
        directories.
        New directories are durable at once. With `made_in` the caller flushes instead, and `made_in` gets the
        directories to flush."""
        fd = (
            self._open_or_make_directory(path, made_in) if create else self._open_directory_at(path)
        )
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, path: str, *, bytes_max: int) -> Examined:
        """Read a file.

        Raises: NotFound, Refused when it is no regular file, OverLimit when it is too large.
        """
        with closing(self._reader(bytes_max)) as reader:
            return reader.read(path)

    @contextmanager
    def reading(self, *, bytes_max: int) -> Generator[Callable[[str], Examined]]:
        """Give a function that reads one file after the other, like `read`. It keeps a directory open for the
        next file in it."""
        with closing(self._reader(bytes_max)) as reader:
            yield reader.read

    def _reader(self, bytes_max: int) -> _Reader:
        return _Reader(self._fd, self._open_directory_at, self._opened_file, bytes_max)

    def _opened_file(self, directory: int, leaf: str) -> int:
        return os.open(leaf, os.O_RDONLY | _ALWAYS, dir_fd=directory)

    def _open_or_make_directory(self, path: str, made_in: set[str] | None) -> int:
        try:
            return self._open_directory_at(path)
        except FileNotFoundError:
            self._make_directories(path, made_in)
            return self._open_directory_at(path)

    def _open_directory_at(self, path: str) -> int:
        """Open a directory anew. A copy of a handle would share its position in the listing: of two threads
        that list a directory through one handle, neither sees all of it."""
        return self._open(path or ".", _DIRECTORY)

    def _make_directories(self, path: str, made_in: set[str] | None) -> None:
        """Make each missing directory on the way."""
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            above = "/".join(parts[: depth - 1])
            with self.directory(above) as parent:
                name = parts[depth - 1]
                try:
                    os.mkdir(name, 0o700, dir_fd=parent)
                except FileExistsError:
                    continue
                if (owner := self.owner) is not None:
                    os.chown(name, *owner, dir_fd=parent, follow_symlinks=False)
                if made_in is None:
                    os.fsync(parent)
                else:
                    made_in.add(above)

    def _open(self, path: str, flags: int) -> int:
        if self._openat2:
            return _openat2(self._fd, path, flags | _ALWAYS)
        return _walk(self._fd, path, flags | _ALWAYS)


class _Reader:
    """A reader of one file after the other."""

    def __init__(
        self,
        root: int,
        open_directory: Callable[[str], int],
        open_file: Callable[[int, str], int],
        bytes_max: int,
    ) -> None:
        self._root = root
        self._open_directory = open_directory
        self._open_file = open_file
        self._bytes_max = bytes_max
        self._directory, self._fd = "", root
        """The directory of the last file, and its handle."""

    def read(self, path: str) -> Examined:
        directory, _, leaf = path.rpartition("/")
        try:
            if directory == self._directory:
                try:
                    return self._read(leaf, path)
                except FileNotFoundError:
                    pass  # another directory may have this name by now: open it anew
            self._enter(directory)
            return self._read(leaf, path)
        except OSError as error:
            raise as_failure(error, path) from error

    def close(self) -> None:
        left, self._directory, self._fd = self._fd, "", self._root
        if left != self._root:
            os.close(left)

    def _enter(self, directory: str) -> None:
        self.close()
        if directory:
            self._fd = self._open_directory(directory)
            self._directory = directory

    def _read(self, leaf: str, path: str) -> Examined:
        for _ in range(_TRIES_MAX):
            fd = self._open_file(self._fd, leaf)
            try:
                status = os.fstat(fd)
                check_regular(status, path)
                named = os.stat(leaf, dir_fd=self._fd, follow_symlinks=False)
                if _links(named) == _links(status) or os.fstat(fd).st_nlink == 0:
                    return read_all(fd, status.st_size, self._bytes_max), status
            finally:
                os.close(fd)  # renamed, linked or written to since: try again
        raise Refused("path", path, "keeps changing: other programs replace it", remedy="try again")


def check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("path", path, "is not a regular file")
    if status.st_nlink > 1:
        raise Refused("path", path, "has a second hard link, so it may be another file too")


def _links(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_nlink, status.st_ctime_ns)


def rename_new(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Rename, failing with FileExistsError instead of replacing anything."""
    try:
        _renameat2(source_fd, source, target_fd, target, _RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)
        os.unlink(source, dir_fd=source_fd)


def exchange(one_fd: int, one: str, other_fd: int, other: str) -> bool:
    """Exchange two names in one step. Return False if the file system cannot."""
    try:
        _renameat2(one_fd, one, other_fd, other, _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return False
    return True


def flush_all(fd: int) -> bool:
    """Make everything on the file system of `fd` durable. For many files this is one step, where fsync waits
    once for each. Return False if the system cannot."""
    call = getattr(_libc, "syncfs", None)
    return call is not None and call(fd) == 0


def _renameat2(source_fd: int, source: str, target_fd: int, target: str, flags: int) -> None:
    call = getattr(_libc, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    if call(source_fd, os.fsencode(source), target_fd, os.fsencode(target), flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def as_failure(error: OSError, path: str) -> Failure:
    """Translate an error of the file system for a caller that named `path`."""
    if error.errno == errno.ENOENT:
        return NotFound("file", path)
    if error.errno in _AS_LINK_OR_NOT_A_DIRECTORY:
        return Refused("path", path, "has a symbolic link or a file where a directory must be")
    if error.errno in {errno.EISDIR, errno.ENXIO, errno.ENOTEMPTY}:
        return Refused("path", path, "is not a regular file")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable(repr(path), "the disk is full", remedy="free some space and try again")
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return Unavailable(
            repr(path), f"not permitted ({error.strerror})", remedy="check who owns the home"
        )
    return Unavailable(repr(path), error.strerror or str(error))


def read_all(fd: int, size: int, bytes_max: int) -> bytes:
    """Read everything up to the end, which may have moved since `size` was read.

    Raises: OverLimit when the file has more than `bytes_max` bytes.
    """
    if size > bytes_max:
        raise OverLimit("size of the file", maximum=bytes_max, actual=size, unit="bytes")
    chunks: list[bytes] = []
    left = bytes_max + 1
    if size < bytes_max:
        data = os.read(fd, size + 1)
        if len(data) == size:
            return data  # complete: one byte more was requested, and there was none
        chunks.append(data)
        left -= len(data)
    while chunk := os.read(fd, min(left, max(size, 4096) + 1)):
        chunks.append(chunk)
        left -= len(chunk)
        if left <= 0:
            actual = bytes_max + 1 - left
            raise OverLimit("size of the file", maximum=bytes_max, actual=actual, unit="bytes")
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
