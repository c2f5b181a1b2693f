"""Read and write archives: files handed over as a directory, a zip, a tar or a single file.

An archive is untrusted input, whoever brings it. Links, devices and pipes are skipped. No declared size is
trusted: unpacked bytes are counted as they come out, and unpacking ends at the limit. Names are returned
as they are in the archive. A later step checks whether they are valid (`valid_name`). Each skipped file is
listed with its reason.

Deliberately absent: xz (its archives may demand gigabytes before the first byte comes out), passwords,
archives in archives.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Literal, Protocol

from workspaces.errors import Failure, NotFound, OverLimit, Refused
from workspaces.localfs.safe_open import SafeRoot, as_failure
from workspaces.paths import WorkspacePath
from workspaces.workspace_record import Quota

ENTRIES_MAX = 100_000
"""Most entries examined. A directory with more is a disk, not a memory."""

DIRECTORY_BYTES_MAX = 32 * 2**20
"""Largest table of contents of a zip, which is read whole: over 300 bytes for each of ENTRIES_MAX."""

DEPTH_MAX = 64

UNPACKED_QUOTAS = 4
"""Most bytes unpacked, as a multiple of the workspace's quota: skipped files cost time too."""

ArchiveKind = Literal["directory", "zip", "tar", "file"]

Enter = Callable[[str], bool]
"""Return True if a directory of this name is to be read."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that is not taken over."""

    name: str
    reason: str


@dataclass(slots=True)
class Archive:
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    left: list[SkippedFile] = field(default_factory=list[SkippedFile])
    """Files that were skipped, each with its reason."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    size: int
    problem: str | None
    read: Callable[[int], bytes]
    """Read at most this many bytes."""


def kind_of(source: Path) -> ArchiveKind:
    try:
        status = source.stat()
        if stat.S_ISDIR(status.st_mode):
            return "directory"
        if not stat.S_ISREG(status.st_mode):
            raise Refused("source", str(source), "is neither a directory nor a file")
        with source.open("rb") as stream:
            head = stream.read(512)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise NotFound("directory or archive", str(source)) from error
        raise as_failure(error, str(source)) from error
    if head[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return "zip"
    if head[:2] == b"\x1f\x8b" or head[:3] == b"BZh" or head[257:262] == b"ustar":
        return "tar"
    if head[:6] == b"\xfd7zXZ\x00":
        remedy = "unpack it and import the directory"
        raise Refused(
            "source", str(source), "is packed with xz, which is not supported", remedy=remedy
        )
    return "file"


def top_of(source: Path) -> set[str]:
    """Return the names at the top, without a single directory that wraps the whole archive."""
    kind = kind_of(source)
    if kind == "directory":
        try:
            return {entry.name for entry in os.scandir(source)}
        except OSError as error:
            raise as_failure(error, str(source)) from error
    if kind == "file":
        return {source.name}
    names = _listed(source, kind)
    wrapping = _wrapping(names)
    return {name.removeprefix(wrapping).partition("/")[0] for name in names}


def unpack(source: Path, quota: Quota, *, enter: Enter = lambda _: True) -> Archive:
    """Return every file within the quota, by name. A single file that is too large is skipped.

    Raises: OverLimit when there are too many files, or they are too large together.
    """
    kind = kind_of(source)
    archive = Archive()
    wrapping = "" if kind in {"directory", "file"} else _wrapping(_listed(source, kind))
    total = 0
    with _entries(source, kind, quota, enter) as entries:
        for entry in entries:
            name = entry.name.removeprefix(wrapping)
            data = _read_entry(entry, name, quota, archive)
            if data is None:
                continue
            total += len(data)
            _check("size", total, quota.bytes, "bytes")
            archive.files[name] = data
            _check("files", len(archive.files), quota.files, "files")
    return archive


def pack(
    files: Iterable[tuple[WorkspacePath, bytes]], out: IO[bytes], *, ending: str, at: datetime
) -> None:
    """Write an archive whose bytes depend on the files and on `at` alone."""
    if ending == ".zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, data in files:
                info = zipfile.ZipInfo(path, at.timetuple()[:6])
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, data)
        return
    with ExitStack() as stack:
        stream: IO[bytes] | gzip.GzipFile = out
        if ending != ".tar":
            stream = stack.enter_context(gzip.GzipFile("", "wb", fileobj=out, mtime=0))
        archive = stack.enter_context(tarfile.open(fileobj=stream, mode="w"))
        for path, data in files:
            info = tarfile.TarInfo(path)
            info.size, info.mtime, info.mode = len(data), int(at.timestamp()), 0o644
            archive.addfile(info, io.BytesIO(data))


def _read_entry(entry: _Entry, name: str, quota: Quota, archive: Archive) -> bytes | None:
    """Return the bytes of an entry, or None after adding it to the skipped files with a reason."""
    problem = entry.problem
    if problem is None and name in archive.files:
        problem = "is in the archive twice; the first one was taken"
    if problem is None and entry.size > quota.file_bytes:
        problem = f"has {entry.size:,} bytes; the limit for a file is {quota.file_bytes:,}"
    if problem is None:
        try:
            data = entry.read(quota.file_bytes + 1)
            if len(data) <= quota.file_bytes:
                return data
            problem = f"has more than {quota.file_bytes:,} bytes"
        except OverLimit:
            raise
        except Failure as failure:
            problem = str(failure)
        except _DAMAGED as error:
            problem = f"is damaged ({error})"
    archive.left.append(SkippedFile(name, problem))
    return None


_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
)
"""Exceptions of the archive modules for bytes that are not a valid archive. OSError is for bzip2."""


@contextmanager
def _entries(
    source: Path, kind: ArchiveKind, quota: Quota, enter: Enter
) -> Generator[Iterator[_Entry]]:
    opened = {"directory": _directory, "zip": _zip, "tar": _tar, "file": _file}[kind]
    try:
        with opened(source, quota, enter) as entries:
            yield _limited_count(entries)
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise as_failure(error, str(source)) from error
        raise Refused("source", str(source), f"is damaged ({error})") from error


def _limited_count(entries: Iterator[_Entry]) -> Iterator[_Entry]:
    for number, entry in enumerate(entries, 1):
        _check("entries", number, ENTRIES_MAX, "entries")
        yield entry


def _listed(source: Path, kind: ArchiveKind) -> list[str]:
    """Return the names of the entries that could be taken."""
    with _entries(source, kind, Quota(), lambda _: True) as entries:
        return [entry.name for entry in entries if entry.problem is None]


def _wrapping(names: list[str]) -> str:
    """Return the prefix of a single top directory, such as `vault/`, if all names lie in it."""
    tops = {name.partition("/")[0] for name in names}
    if len(tops) != 1 or any("/" not in name for name in names):
        return ""
    return f"{tops.pop()}/"


def _check(noun: str, actual: int, maximum: int, unit: str) -> None:
    if actual > maximum:
        raise OverLimit(f"{noun} of the import", maximum=maximum, actual=actual, unit=unit)


# --- a directory ------------------------------------------------------------------------------------


@contextmanager
def _directory(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    del quota
    root = SafeRoot(source)
    try:
        yield _walked(root, "", enter, 0)
    finally:
        root.close()


def _walked(root: SafeRoot, directory: str, enter: Enter, depth: int) -> Iterator[_Entry]:
    try:
        with root.directory(directory) as fd, os.scandir(fd) as scanned:
            found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in scanned)
    except OSError as error:
        yield _Entry(directory, 0, str(as_failure(error, directory)), _nothing)
        return
    for leaf, status in found:
        name = f"{directory}/{leaf}" if directory else leaf
        if not stat.S_ISDIR(status.st_mode):
            yield _Entry(name, status.st_size, _problem(status.st_mode), _reader(root, name))
        elif not enter(name) or depth == DEPTH_MAX:
            yield _Entry(f"{name}/", 0, "was not searched", _nothing)
        else:
            yield from _walked(root, name, enter, depth + 1)


def _reader(root: SafeRoot, name: str) -> Callable[[int], bytes]:
    return lambda bytes_max: root.read(name, bytes_max=bytes_max)[0]


def _problem(mode: int) -> str | None:
    if stat.S_ISLNK(mode):
        return "is a link"
    return None if stat.S_ISREG(mode) else "is not a regular file"


def _nothing(bytes_max: int) -> bytes:
    del bytes_max
    return b""


# --- archives ---------------------------------------------------------------------------------------


@contextmanager
def _zip(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    with source.open("rb") as stream:
        _check_table_of_contents(source, stream)
        with zipfile.ZipFile(stream) as archive:
            allowance = _Allowance(quota)
            yield (
                _zip_entry(archive, info, allowance)
                for info in archive.infolist()
                if not info.is_dir() and _is_entered(info.filename, enter)
            )


def _check_table_of_contents(source: Path, stream: IO[bytes]) -> None:
    """Check the length that the zip's end record states for its table of contents, because the table is read
    whole."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(
        max(0, size - 65_557)
    )  # 22 bytes of the end record, and the longest comment after it
    tail = stream.read()
    end = tail.rfind(b"PK\x05\x06")
    if b"PK\x06\x07" in tail[max(0, end - 20) : max(0, end)]:
        raise Refused(
            "source",
            str(source),
            "is a ZIP64 archive (over 65,535 files or 4 GB), which is not supported",
        )
    stated_bytes = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    _check("table of contents", stated_bytes, DIRECTORY_BYTES_MAX, "bytes")


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, allowance: _Allowance) -> _Entry:
    def read(bytes_max: int) -> bytes:
        with archive.open(info) as stream:
            return allowance.take(stream.read(bytes_max))

    mode = info.external_attr >> 16
    problem = _problem(mode) if stat.S_IFMT(mode) else None
    if info.flag_bits & 0x1:
        problem = "is encrypted"
    return _Entry(_zip_name(info), info.file_size, problem, read)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Return the name of an entry. Archives made on macOS do not declare that their names are UTF-8. Some
    made on Windows have backslashes between the parts."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()
    return _without_dots(name.replace("\\", "/"))


@contextmanager
def _tar(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    with ExitStack() as stack:
        packed = stack.enter_context(source.open("rb"))
        head = packed.read(3)
        packed.seek(0)
        stream: _Readable = packed
        if head[:2] == b"\x1f\x8b":
            stream = stack.enter_context(gzip.GzipFile(fileobj=packed))
        elif head == b"BZh":
            stream = stack.enter_context(bz2.BZ2File(packed))
        limited = _Limited(stream, _Allowance(quota))
        archive = stack.enter_context(tarfile.open(fileobj=limited, mode="r|"))
        yield (
            _tar_entry(archive, member)
            for member in archive
            if not member.isdir() and _is_entered(member.name, enter)
        )


def _tar_entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> _Entry:
    def read(bytes_max: int) -> bytes:
        stream = archive.extractfile(member)
        return stream.read(bytes_max) if stream else b""

    problem = None
    if member.islnk() or member.issym():
        problem = "is a link"
    elif not member.isfile() or member.issparse():
        problem = "is not a regular file"
    return _Entry(_without_dots(member.name), member.size, problem, read)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Allowance:
    """The number of bytes that may still be unpacked."""

    def __init__(self, quota: Quota) -> None:
        self._maximum = quota.bytes * UNPACKED_QUOTAS
        self._read_entry = 0

    def take(self, data: bytes) -> bytes:
        self._read_entry += len(data)
        _check("unpacked size", self._read_entry, self._maximum, "bytes")
        return data


class _Limited(io.RawIOBase):
    """A stream that raises OverLimit when more bytes come out of it than allowed."""

    def __init__(self, stream: _Readable, allowance: _Allowance) -> None:
        self._stream = stream
        self._allowance = allowance

    def read(self, size: int = -1) -> bytes:
        return self._allowance.take(self._stream.read(size))


def _is_entered(name: str, enter: Enter) -> bool:
    parts = _without_dots(name.replace("\\", "/")).split("/")[:-1]
    return all(enter("/".join(parts[:count])) for count in range(1, len(parts) + 1))


def _without_dots(name: str) -> str:
    """Remove the `./` that tar often puts before a name."""
    return "/".join(part for part in name.split("/") if part != ".")


@contextmanager
def _file(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    del quota, enter

    def read(bytes_max: int) -> bytes:
        with source.open("rb") as stream:
            return stream.read(bytes_max)

    yield iter([_Entry(source.name, source.stat().st_size, None, read)])
