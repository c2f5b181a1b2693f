"""A parcel: files that somebody hands over as a directory, a zip, a tar or a single file.

It is read as a stranger's, whoever brings it. Links, devices and pipes are left. Nothing is believed about
a size: what is unpacked is counted as it comes out, and ends at the limit. Names are given as they are
found; whether they are good is asked of them later (`renaming`). What is left is told with its reason.

Deliberately absent: xz (its archives may ask for gigabytes before the first byte comes out), passwords,
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
"""Looked at in all: a directory with more is a disk, not a memory."""

DIRECTORY_BYTES_MAX = 32 * 2**20
"""Of a zip's table of contents, which is read whole: over 300 bytes for each of ENTRIES_MAX."""

DEPTH_MAX = 64

UNPACKED_QUOTAS = 4
"""So many times a workspace's bytes are unpacked at the most: what is passed over costs time too."""

ArchiveKind = Literal["directory", "zip", "tar", "file"]

Enter = Callable[[str], bool]
"""Whether a directory of this name is looked into."""


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """Something that is not taken over."""

    name: str
    reason: str


@dataclass(slots=True)
class Archive:
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    left: list[SkippedFile] = field(default_factory=list[SkippedFile])


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    size: int
    problem: str | None
    read: Callable[[int], bytes]
    """At most so many bytes."""


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
        remedy = "unpack it, and import the directory"
        raise Refused("source", str(source), "is packed with xz, which is not read", remedy=remedy)
    return "file"


def top_of(source: Path) -> set[str]:
    """The names at the top, without the one directory that an archive may wrap everything in."""
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
    """Every file within the quota, under its name. OverLimit when they are too many or too large
    together; one that is too large alone is left."""
    kind = kind_of(source)
    parcel = Archive()
    wrapping = "" if kind in {"directory", "file"} else _wrapping(_listed(source, kind))
    total = 0
    with _entries(source, kind, quota, enter) as entries:
        for entry in entries:
            name = entry.name.removeprefix(wrapping)
            data = _taken(entry, name, quota, parcel)
            if data is None:
                continue
            total += len(data)
            _check("size", total, quota.bytes, "bytes")
            parcel.files[name] = data
            _check("files", len(parcel.files), quota.files, "files")
    return parcel


def pack(
    files: Iterable[tuple[WorkspacePath, bytes]], out: IO[bytes], *, ending: str, at: datetime
) -> None:
    """An archive whose bytes are a function of the files and of `at` alone."""
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


def _taken(entry: _Entry, name: str, quota: Quota, parcel: Archive) -> bytes | None:
    """The bytes of an entry, or None and the reason among what is left."""
    problem = entry.problem
    if problem is None and name in parcel.files:
        problem = "stands there twice; the first was taken"
    if problem is None and entry.size > quota.file_bytes:
        problem = f"has {entry.size:,} bytes, and a file may have {quota.file_bytes:,}"
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
    parcel.left.append(SkippedFile(name, problem))
    return None


_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
)
"""What the archives' modules raise for bytes that are no archive; the last for bzip2."""


@contextmanager
def _entries(
    source: Path, kind: ArchiveKind, quota: Quota, enter: Enter
) -> Generator[Iterator[_Entry]]:
    opened = {"directory": _directory, "zip": _zip, "tar": _tar, "file": _file}[kind]
    try:
        with opened(source, quota, enter) as entries:
            yield _counted(entries)
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise as_failure(error, str(source)) from error
        raise Refused("source", str(source), f"is damaged ({error})") from error


def _counted(entries: Iterator[_Entry]) -> Iterator[_Entry]:
    for number, entry in enumerate(entries, 1):
        _check("entries", number, ENTRIES_MAX, "entries")
        yield entry


def _listed(source: Path, kind: ArchiveKind) -> list[str]:
    """The names of what could be taken."""
    with _entries(source, kind, Quota(), lambda _: True) as entries:
        return [entry.name for entry in entries if entry.problem is None]


def _wrapping(names: list[str]) -> str:
    """`vault/` when everything lies in it."""
    tops = {name.partition("/")[0] for name in names}
    if len(tops) != 1 or any("/" not in name for name in names):
        return ""
    return f"{tops.pop()}/"


def _check(what: str, actual: int, maximum: int, unit: str) -> None:
    if actual > maximum:
        raise OverLimit(f"{what} of what is handed over", maximum=maximum, actual=actual, unit=unit)


# --- a directory ------------------------------------------------------------------------------------


@contextmanager
def _directory(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    del quota
    beneath = SafeRoot(source)
    try:
        yield _walked(beneath, "", enter, 0)
    finally:
        beneath.close()


def _walked(beneath: SafeRoot, directory: str, enter: Enter, depth: int) -> Iterator[_Entry]:
    try:
        with beneath.directory(directory) as fd, os.scandir(fd) as scanned:
            found = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in scanned)
    except OSError as error:
        yield _Entry(directory, 0, str(as_failure(error, directory)), _nothing)
        return
    for leaf, status in found:
        name = f"{directory}/{leaf}" if directory else leaf
        if not stat.S_ISDIR(status.st_mode):
            yield _Entry(name, status.st_size, _problem(status.st_mode), _reader(beneath, name))
        elif not enter(name) or depth == DEPTH_MAX:
            yield _Entry(f"{name}/", 0, "was not looked into", _nothing)
        else:
            yield from _walked(beneath, name, enter, depth + 1)


def _reader(beneath: SafeRoot, name: str) -> Callable[[int], bytes]:
    return lambda bytes_max: beneath.read(name, bytes_max=bytes_max)[0]


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
            left = _Allowance(quota)
            yield (
                _zip_entry(archive, info, left)
                for info in archive.infolist()
                if not info.is_dir() and _enters(info.filename, enter)
            )


def _check_table_of_contents(source: Path, stream: IO[bytes]) -> None:
    """It is read whole, and as long as its own end says."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 65_557))  # the end's 22 bytes, and the longest comment behind it
    tail = stream.read()
    end = tail.rfind(b"PK\x05\x06")
    if b"PK\x06\x07" in tail[max(0, end - 20) : max(0, end)]:
        raise Refused("source", str(source), "is a zip of the kind for over 65,535 files or 4 GB")
    told = int.from_bytes(tail[end + 12 : end + 16], "little") if end >= 0 else 0
    _check("table of contents", told, DIRECTORY_BYTES_MAX, "bytes")


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: _Allowance) -> _Entry:
    def read(bytes_max: int) -> bytes:
        with archive.open(info) as stream:
            return left.take(stream.read(bytes_max))

    mode = info.external_attr >> 16
    problem = _problem(mode) if stat.S_IFMT(mode) else None
    if info.flag_bits & 0x1:
        problem = "is encrypted"
    return _Entry(_zip_name(info), info.file_size, problem, read)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Archives made on macOS do not say that their names are UTF-8, some made on Windows have
    backslashes between the parts."""
    name = info.filename
    if not info.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()
    return _plain(name.replace("\\", "/"))


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
            if not member.isdir() and _enters(member.name, enter)
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
    return _Entry(_plain(member.name), member.size, problem, read)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Allowance:
    """What may still be unpacked."""

    def __init__(self, quota: Quota) -> None:
        self._maximum = quota.bytes * UNPACKED_QUOTAS
        self._taken = 0

    def take(self, data: bytes) -> bytes:
        self._taken += len(data)
        _check("unpacked size", self._taken, self._maximum, "bytes")
        return data


class _Limited(io.RawIOBase):
    """A stream that ends with OverLimit when more comes out of it than is allowed."""

    def __init__(self, stream: _Readable, left: _Allowance) -> None:
        self._stream = stream
        self._left = left

    def read(self, size: int = -1) -> bytes:
        return self._left.take(self._stream.read(size))


def _enters(name: str, enter: Enter) -> bool:
    parts = _plain(name.replace("\\", "/")).split("/")[:-1]
    return all(enter("/".join(parts[:count])) for count in range(1, len(parts) + 1))


def _plain(name: str) -> str:
    """Without the `./` that tar likes to begin with."""
    return "/".join(part for part in name.split("/") if part != ".")


@contextmanager
def _file(source: Path, quota: Quota, enter: Enter) -> Generator[Iterator[_Entry]]:
    del quota, enter

    def read(bytes_max: int) -> bytes:
        with source.open("rb") as stream:
            return stream.read(bytes_max)

    yield iter([_Entry(source.name, source.stat().st_size, None, read)])
