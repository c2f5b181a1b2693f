"""Opening files beneath a directory without ever leaving it.

An agent owns the tree that the host reads, and may swap a directory for a symlink between any two of
the host's system calls. Checking a path and then opening it by string therefore proves nothing. Here
every open starts at a directory handle and is refused by the kernel if any component on the way is a
link: `openat2` with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS where the kernel has it, else a walk that
opens one component after the other with O_NOFOLLOW. Both give the same answers; the first is one call.
A file is opened in the directory that it lies in: one name in a handle that was come to in this way, with
O_NOFOLLOW, so that there is nothing on its way that could be a link. A handle stays the directory that it
is, whatever takes its name; so neighbours are read through one.

What comes out is opened non-blocking and then looked at through its own descriptor: a regular file
with exactly one link, or it is not read. (A second link would be another name for a file that may lie
elsewhere; a FIFO would make the host wait for the agent.) One link is not enough: if the name in the
tree was taken away between the open and the look, the one that is left is the other one. So the name
is looked up again, and must lead to the same file, unchanged since (making or removing a link changes
a file's ctime), unless the file has no name at all any more: then it was the tree's, and was replaced.
[Without that look a process that linked and unlinked got 4 of 500 000 reads out.]

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
"""The number of openat2 on every architecture that Linux has had since 5.6."""

_BENEATH_NO_SYMLINKS = 0x08 | 0x04 | 0x02  # beneath, no symlinks, no magic links
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_AS_LINK_OR_NOT_A_DIRECTORY = {errno.ELOOP, errno.ENOTDIR, errno.EXDEV}
_TRIES_MAX = 100
"""Something may change between two system calls; a hundred times in a row is an attack."""

_libc = ctypes.CDLL(None, use_errno=True)

Examined = tuple[bytes, os.stat_result]
"""A regular file's bytes, and what its descriptor says of it."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class SafeRoot:
    """A directory handle, and opens that stay beneath it. Threads may share it.

    It is closed by `close`, or when nobody has it any more: when a workspace is deleted, other threads may
    still read it, and none of them knows to be the last.
    """

    def __init__(self, root: Path, *, openat2: bool | None = None) -> None:
        self._fd = os.open(root, _DIRECTORY | os.O_CLOEXEC)
        self._closing = finalize(self, os.close, self._fd)
        self._openat2 = _kernel_has_openat2(self._fd) if openat2 is None else openat2

    def close(self) -> None:
        self._closing()

    def is_at(self, path: Path) -> bool:
        """Whether `path` still names this directory: it may have been moved away, or replaced."""
        try:
            found = path.lstat()
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom root gives what it makes in here: the directory's owner. None: nothing is to be given."""
        if os.geteuid() != 0:
            return None
        status = os.fstat(self._fd)
        return (status.st_uid, status.st_gid) if status.st_uid else None

    def identity(self) -> str:
        """Device and inode of this directory."""
        mine = os.fstat(self._fd)
        return f"{mine.st_dev}:{mine.st_ino}"

    @contextmanager
    def directory(
        self, path: str, *, create: bool = False, made_in: set[str] | None = None
    ) -> Generator[int]:
        """A descriptor of the directory `path` (`""` is the root), made on the way if asked for. What is
        made is durable at once; with `made_in` the caller sees to that, and is told where."""
        fd = self._opened_or_made(path, made_in) if create else self._opened_directory(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, path: str, *, bytes_max: int) -> Examined:
        """NotFound, Refused, OverLimit."""
        with closing(self._reader(bytes_max)) as reader:
            return reader.read(path)

    @contextmanager
    def reading(self, *, bytes_max: int) -> Generator[Callable[[str], Examined]]:
        """As `read`, of one file after the other: the directory of one stays open for its neighbours."""
        with closing(self._reader(bytes_max)) as reader:
            yield reader.read

    def _reader(self, bytes_max: int) -> _Reader:
        return _Reader(self._fd, self._opened_directory, self._opened_file, bytes_max)

    def _opened_file(self, directory: int, leaf: str) -> int:
        return os.open(leaf, os.O_RDONLY | _ALWAYS, dir_fd=directory)

    def _opened_or_made(self, path: str, made_in: set[str] | None) -> int:
        try:
            return self._opened_directory(path)
        except FileNotFoundError:
            self._make_directories(path, made_in)
            return self._opened_directory(path)

    def _opened_directory(self, path: str) -> int:
        """Never a copy of the handle, which would share its place in the listing: of two who list a directory
        through one, neither sees all of it."""
        return self._open(path or ".", _DIRECTORY)

    def _make_directories(self, path: str, made_in: set[str] | None) -> None:
        """Each missing directory on the way."""
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
    """Reads one file after the other."""

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
        """Of the last file."""

    def read(self, path: str) -> Examined:
        directory, _, leaf = path.rpartition("/")
        try:
            if directory == self._directory:
                try:
                    return self._read(leaf, path)
                except FileNotFoundError:
                    pass  # another directory may have the name by now
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
                os.close(fd)  # renamed, linked or written to since: once more
        raise Refused("path", path, "changes faster than it can be opened", remedy="try again")


def check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused("path", path, "is not a regular file")
    if status.st_nlink > 1:
        raise Refused("path", path, "has a second link, which may be another file's name")


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
    """Let two names change places in one step; False where the file system cannot."""
    try:
        _renameat2(one_fd, one, other_fd, other, _RENAME_EXCHANGE)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return False
    return True


def flush_all(fd: int) -> bool:
    """Make everything on the file system of `fd` durable: for many files in one step, what takes one
    wait each by fsync. False where the system cannot."""
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


def read_all(fd: int, size: int, bytes_max: int) -> bytes:
    """Everything up to the end, which may have moved since `size` was asked for. OverLimit."""
    if size > bytes_max:
        raise OverLimit("size of the file", maximum=bytes_max, actual=size, unit="bytes")
    chunks: list[bytes] = []
    left = bytes_max + 1
    if size < bytes_max:
        data = os.read(fd, size + 1)
        if len(data) == size:
            return data  # all of it, and one more was asked for: there is none
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
