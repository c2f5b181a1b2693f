"""The listing of a backup: every file and directory of a home, and the pieces that hold the bytes.

The bytes of all files lie in *pieces* of at most 4 MiB, each under its SHA-256. A large file has pieces of
its own, so that it is stored once. Small files share one, so that a thousand notes are one object. So a
file names ranges of pieces. The listing is JSON, one line for each file, and is itself cut into pieces. A
*snapshot* is a small JSON document that names them. It is written last, so a snapshot that exists is whole.

    objects/<aa>/<sha256>       a piece
    snapshots/<stamp>.json      {format, at, machine, records, files, bytes, listing: [<sha256>], leftOut}
    a line for a file           {path, mode, size, mtime, pieces: [[sha256, offset, bytes]], ctime?, inode?}
    a line for a directory      {path, mode}

A file whose size, times and inode equal those in the last snapshot of the same home is not read again.
`ctime` and `inode` are left out for a file that changed a moment before it was read, and for one that was
made for the backup: those are read again.

What is read here may come from anyone. So every path, number and length is checked before it is used.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from workspaces.errors import Refused

FORMAT = 1
PIECE_BYTES_MAX = 4 * 2**20
SHARED_BYTES_MAX = 256 * 2**10
"""The largest file that shares a piece with others."""
LINE_BYTES_MAX = 4 * 2**20
"""A line of a file of 200 GB."""
FILES_MAX = 20_000_000
SNAPSHOT_BYTES_MAX = 4 * 2**20
PATH_BYTES_MAX = 4096
MODES = 0o777

RECORDS = "state.db"
AGREED = "agreed"

_ROOTS = {"workspaces", "history", "entries", "cards", "templates", "used", AGREED}
"""The directories that a backup holds. A line of any other is refused."""

_DIGEST = re.compile("[0-9a-f]{64}")
_NAMESPACE = re.compile(r"fs-[0-9a-f]{40}")
_AT_THE_TOP = re.compile(r"[^/]{1,200}\.yaml|admin\.key|state\.db")

STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{6}\.[0-9]{6}Z")
"""The name of a snapshot: a stamp without colons."""


class FileSignature(NamedTuple):
    """The facts by which an unchanged file is recognised."""

    size: int
    mtime: int
    ctime: int
    inode: int


@dataclass(slots=True)
class Piece:
    """Bytes that are stored together. It has its name once it is complete."""

    digest: str = ""


class Range(NamedTuple):
    """A part of a piece."""

    piece: Piece
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ListedFile:
    path: str
    mode: int
    size: int
    mtime: int
    ranges: tuple[Range, ...]
    signature: FileSignature | None = None
    """None: it must be read again by the next backup."""

    def as_line(self) -> str:
        line: dict[str, Any] = {
            "path": self.path,
            "mode": self.mode,
            "size": self.size,
            "mtime": self.mtime,
            "pieces": [[one.piece.digest, one.offset, one.size] for one in self.ranges],
        }
        if self.signature is not None:
            line |= {"ctime": self.signature.ctime, "inode": self.signature.inode}
        return json.dumps(line, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ListedDirectory:
    path: str
    mode: int

    def as_line(self) -> str:
        return json.dumps({"path": self.path, "mode": self.mode}, separators=(",", ":"))


Listed = ListedFile | ListedDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSnapshot:
    """One backup of a home."""

    stamp: str
    machine: str
    """The home's own id. Only a home with the same id compares its files with this listing."""
    records: bool
    """True if the records are in it."""
    records_signature: tuple[int, ...]
    files: int
    size: int
    listing: tuple[str, ...]
    left_out: tuple[str, ...]

    def as_bytes(self) -> bytes:
        document = {
            "format": FORMAT,
            "at": self.stamp,
            "machine": self.machine,
            "records": self.records,
            "recordsSignature": list(self.records_signature),
            "files": self.files,
            "bytes": self.size,
            "listing": list(self.listing),
            "leftOut": list(self.left_out),
        }
        return json.dumps(document, indent=1).encode() + b"\n"


def parse_snapshot(stamp: str, data: bytes) -> BackupSnapshot:
    """Return the snapshot that a store holds under this stamp.

    Raises: Refused if it is damaged, or of a newer format.
    """
    field = f"snapshot {stamp}"
    if len(data) > SNAPSHOT_BYTES_MAX:
        raise Refused(field, None, f"has more than {SNAPSHOT_BYTES_MAX:,} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(field, "is not whole JSON") from error
    if not isinstance(document, dict):
        raise _damaged(field, "is not an object")
    found = cast("dict[str, Any]", document)
    version = found.get("format")
    if isinstance(version, int) and version > FORMAT:
        rule = f"is newer than this version can read ({FORMAT})"
        raise Refused(f"{field}: format", version, rule, remedy="use a newer workspace-harness")
    try:
        snapshot = BackupSnapshot(
            stamp=stamp,
            machine=str(found["machine"]),
            records=bool(found["records"]),
            records_signature=tuple(_number(one) for one in found["recordsSignature"]),
            files=_number(found["files"]),
            size=_number(found["bytes"]),
            listing=tuple(_digest(one) for one in found["listing"]),
            left_out=tuple(str(one) for one in found["leftOut"]),
        )
        if version != FORMAT or found["at"] != stamp or snapshot.files > FILES_MAX:
            raise ValueError("format, at or files")
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(field, f"has an invalid field ({error})") from error
    return snapshot


def parse_listing(stamp: str, parts: Iterable[bytes]) -> Iterator[Listed]:
    """Yield the lines of a listing that comes in parts.

    Raises: Refused for a line that is damaged, or whose path leads elsewhere.
    """
    pieces: dict[str, Piece] = {}
    seen: set[str] = set()
    for line in _lines(stamp, parts):
        try:
            one = _listed(json.loads(line), pieces)
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise _damaged(f"listing of {stamp}", f"has an invalid line ({error})") from error
        if one.path in seen or len(seen) >= FILES_MAX:
            raise _damaged(f"listing of {stamp}", "names a path twice, or too many paths")
        seen.add(one.path)
        yield one


def rule_broken_by(path: str) -> str | None:
    """Return the rule that a path of a listing breaks; None if a restore may write it."""
    parts = path.split("/")
    if len(path) > PATH_BYTES_MAX or "\0" in path:
        return "is too long or has a NUL"
    if any(part in {"", ".", ".."} for part in parts):
        return "has an empty, '.' or '..' part"
    if len(parts) == 1:
        is_known = path in _ROOTS or _AT_THE_TOP.fullmatch(path) is not None
        return None if is_known else "is no file of a backup"
    match parts[0]:
        case "workspaces":
            is_known = _NAMESPACE.fullmatch(parts[1]) is not None
        case "history":
            is_known = _NAMESPACE.fullmatch(parts[1].removesuffix(".git")) is not None
        case "agreed":
            name = parts[1].removesuffix(".json")
            is_known = len(parts) == 2 and _NAMESPACE.fullmatch(name) is not None
        case root:
            is_known = root in _ROOTS
    return None if is_known else "is no file of a backup"


def _lines(stamp: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
        if len(rest) > LINE_BYTES_MAX:
            raise _damaged(f"listing of {stamp}", "has a line that is too long")
    if rest:
        raise _damaged(f"listing of {stamp}", "ends within a line")


def _listed(line: Any, pieces: dict[str, Piece]) -> Listed:
    path = line["path"]
    rule = rule_broken_by(path) if isinstance(path, str) else "is no text"
    if rule is not None:
        raise ValueError(f"path {path!r:.200} {rule}")
    mode = _number(line["mode"])
    if mode != stat.S_IMODE(mode) or mode & ~MODES:
        raise ValueError(f"mode {mode:o}")
    if "pieces" not in line:
        return ListedDirectory(path, mode)
    ranges: list[Range] = []
    for digest, offset, size in line["pieces"]:
        if _number(offset) + _number(size) > PIECE_BYTES_MAX:
            raise ValueError("a piece is too long")
        ranges.append(Range(pieces.setdefault(_digest(digest), Piece(digest)), offset, size))
    size, mtime = _number(line["size"]), _number(line["mtime"])
    if size != sum(one.size for one in ranges):
        raise ValueError("the pieces do not have the size of the file")
    signature = None
    if "ctime" in line:
        signature = FileSignature(size, mtime, _number(line["ctime"]), _number(line["inode"]))
    return ListedFile(path, mode, size, mtime, tuple(ranges), signature)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r:.80} is no number")
    return value


def _digest(value: Any) -> str:
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        raise ValueError(f"{value!r:.80} is no SHA-256")
    return value


def _damaged(field: str, rule: str) -> Refused:
    remedy = "name an older snapshot with --snapshot, or make a new backup"
    return Refused(field, None, rule, remedy=remedy)
