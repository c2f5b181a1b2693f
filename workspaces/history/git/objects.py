"""Git objects as bytes: blobs, trees and commits, written durably and read from loose files or packs.

Objects are named by their content. So writing one needs no lock, and a crash leaves at worst unreachable
objects. Each is made durable under a temporary name and only then renamed to its own name. So a file with
an object's name is complete, even after a power cut. `ObjectBatch` writes any number of objects. After its
`sync` the names are durable too, and only then may a branch point at one.

New objects are loose files, which this module reads itself. Many objects at once become a pack
(`packfile`), which waits for the disk twice instead of once for each object. Packing (`repack`) can move
objects into one pack at any moment. GitPython's object database reads packs. Therefore a missing object is
looked for again, with a new listing of the packs, before it counts as missing.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple, NewType

from workspaces.errors import Failure, Unavailable
from workspaces.history.git.packfile import Packed, fits_in_pack, write_pack
from workspaces.localfs.safe_open import flush_all

ObjectId = NewType("ObjectId", str)
"""Git's id of a blob, tree or commit. It is not a Version, and untrusted callers never see it."""

FILE_MODE = "100644"
TREE_MODE = "40000"

LOOKS_MAX = 4
"""Times that a missing object is looked for. Each packing in between explains one miss."""

PACKED_FROM = 64
"""Objects of one batch from which they become a pack. A revision of one file has four objects; a pack for
each revision would be too many packs."""

SYNCED_AT_ONCE = 32
"""Files from which one flush of the whole file system is faster than a flush of each."""

TREES_KEPT = 8
"""Directories in the cache. Making a revision reads each directory on a file's path several times, and the
next revision reads those that this one wrote. An object never changes, so nothing needs invalidation."""

_ENTRY = re.compile(rb"([0-7]++) ([^\0]++)\0(.{20})|.+", re.DOTALL)
"""One entry of a tree: mode, name, id. An invalid rest matches whole, without a mode, so that the search
does not go on inside it."""
_TEMPORARY = "tmp_obj_"  # `git prune` removes files with this prefix
_LEVEL = zlib.Z_BEST_SPEED  # packing compresses again, and better


class TreeEntry(NamedTuple):
    mode: str
    id: ObjectId


Entries = dict[str, TreeEntry]
"""One directory: name → entry."""


def blob_id(data: bytes) -> ObjectId:
    return object_id("blob", data)


def object_id(kind: str, data: bytes) -> ObjectId:
    return ObjectId(sha1(_framed(kind.encode(), data), usedforsecurity=False).hexdigest())


class GitObjects:
    """The objects directory of one git directory. Threads may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._packs = _Packs(directory / "pack")
        self._trees: OrderedDict[ObjectId, Entries] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, object_id: str) -> bytes:
        for look in range(LOOKS_MAX):
            data = self._read_loose(object_id)
            if data is None:
                data = self._packs.read(object_id, again=look > 0)
            if data is not None:
                return data
        raise _damaged_history(self._directory, f"its object {object_id} is missing")

    def size(self, object_id: str) -> int:
        return len(self.read(object_id))

    def entries(self, tree: ObjectId) -> Entries:
        with self._lock:
            entries = self._trees.get(tree)
        if entries is None:
            entries = _parse_tree(self.read(tree))
            self._remember({tree: entries})
        return dict(entries)

    def batch(self) -> ObjectBatch:
        return ObjectBatch(self._directory, self._remember)

    def _remember(self, trees: Mapping[ObjectId, Entries]) -> None:
        with self._lock:
            self._trees.update(trees)
            while len(self._trees) > TREES_KEPT:
                self._trees.popitem(last=False)

    def _read_loose(self, object_id: str) -> bytes | None:
        try:
            with open(f"{self._directory}/{object_id[:2]}/{object_id[2:]}", "rb") as stream:  # noqa: PTH123 - the hot path
                framed = zlib.decompress(stream.read())
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise _damaged_history(
                self._directory, f"its object {object_id} is unreadable ({error})"
            ) from error
        return framed[framed.index(b"\0") + 1 :]


class ObjectBatch:
    """A set of new objects. Nothing is written before `sync`."""

    def __init__(
        self,
        directory: Path,
        on_trees_written: Callable[[Mapping[ObjectId, Entries]], None] = lambda _: None,
    ) -> None:
        """Start an empty batch. `sync` calls `on_trees_written` with the trees that it has written."""
        self._directory = str(directory)
        self._objects: dict[str, Packed] = {}
        self._trees: dict[ObjectId, Entries] = {}
        self._on_trees_written = on_trees_written

    def blob(self, data: bytes) -> ObjectId:
        return self.add("blob", data)

    def tree(self, entries: Mapping[str, TreeEntry]) -> ObjectId:
        parts: list[bytes] = []
        for name, entry in sorted(entries.items(), key=_tree_order):
            parts.append(f"{entry.mode} {name}\0".encode() + bytes.fromhex(entry.id))
        tree = self.add("tree", b"".join(parts))
        self._trees[tree] = dict(entries)
        return tree

    def commit(self, data: bytes) -> ObjectId:
        return self.add("commit", data)

    def add(self, kind: str, data: bytes) -> ObjectId:
        name = object_id(kind, data)
        self._objects[name] = Packed(kind, data)
        return name

    def sync(self) -> None:
        """Write the objects. After this call all of them can be read and survive a power cut.

        Raises: Unavailable when the disk is full or cannot be written."""
        new = {
            object_id: packed
            for object_id, packed in self._objects.items()
            if not os.path.lexists(self._path(object_id))
        }
        is_packed = len(new) >= PACKED_FROM and fits_in_pack(new)
        loose = self._objects.keys() - new.keys() if is_packed else self._objects.keys()
        directories = {self._directory, *(self._path(one).rpartition("/")[0] for one in loose)}
        try:
            if is_packed:
                packs = f"{self._directory}/pack"
                write_pack(Path(packs), new, level=_LEVEL)
                directories.add(packs)
            else:
                self._write_loose(new)
            _sync_all(directories, self._directory)
        except OSError as error:
            raise unwritable(error) from error
        self._on_trees_written(self._trees)

    def _write_loose(self, objects: Mapping[str, Packed]) -> None:
        written: dict[str, str] = {}
        """Temporary name → the object's own name."""
        for object_id, (kind, data) in objects.items():
            path = self._path(object_id)
            framed = _framed(kind.encode(), data)
            written[_write_temporary(path.rpartition("/")[0], framed)] = path
        _sync_all(written, self._directory)
        for temporary, path in written.items():
            os.rename(temporary, path)  # noqa: PTH104 - strings on the hot path

    def _path(self, object_id: str) -> str:
        """Return the path of a loose object. A file with this name is complete: it was synced before it was
        renamed."""
        return f"{self._directory}/{object_id[:2]}/{object_id[2:]}"


class _Packs:
    """A reader of packs. Packs come and go while it reads, so a repeated look lists them anew."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._database: Any = None

    def read(self, object_id: str, *, again: bool) -> bytes | None:
        # a late import: most histories have no pack, and most commands read none
        from gitdb.db.pack import PackedDB  # pyright: ignore[reportMissingTypeStubs]
        from gitdb.exc import BadObject  # pyright: ignore[reportMissingTypeStubs]

        with self._lock:
            if self._database is None or again:
                self._database = PackedDB(str(self._directory))
            try:
                return _read_packed(self._database, bytes.fromhex(object_id))
            except (BadObject, OSError, ValueError, zlib.error):
                return None  # another process has just removed its pack, or the pack is damaged


def _read_packed(database: Any, name: bytes) -> bytes | None:
    """Read an object and apply its chain of deltas. Return None if no pack has the object.

    A delta names its base by distance or by id, independently of the delta before it in the chain. gitdb
    follows all of the first kind and then all of the second. Joined packs (`packfile`) mix both kinds.

    Raises: BadObject when a base is missing."""
    from gitdb.exc import BadObject  # pyright: ignore[reportMissingTypeStubs]
    from gitdb.fun import OFS_DELTA, delta_types  # pyright: ignore[reportMissingTypeStubs]
    from gitdb.stream import DeltaApplyReader  # pyright: ignore[reportMissingTypeStubs]

    for entity in database.entities():
        pack, index = entity.pack(), entity.index()
        number = index.sha_to_index(name)
        if number is None:
            continue
        streams = [pack.stream(index.offset(number))]
        while streams[-1].type_id in delta_types:
            last = streams[-1]
            if last.type_id == OFS_DELTA:
                streams.append(pack.stream(last.pack_offset - last.delta_info))
                continue
            number = index.sha_to_index(bytes(last.delta_info))
            if number is None:
                raise BadObject(last.delta_info)
            streams.append(pack.stream(index.offset(number)))
        applied: Any = DeltaApplyReader
        return bytes((applied.new(streams) if len(streams) > 1 else streams[0]).read())
    return None


def sync(path: Path | str) -> None:
    """Flush a file's bytes, or a directory's names, so that they survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_below(directory: Path) -> None:
    """Flush a directory with everything in it, so that it survives a power cut."""
    if not _flush_file_system(directory):
        for path in (*directory.rglob("*"), directory):
            sync(path)


def _sync_all(paths: Collection[str], within: str) -> None:
    """Flush files. Many are flushed in one step, if the system can do that."""
    if len(paths) >= SYNCED_AT_ONCE and _flush_file_system(within):
        return
    for path in paths:
        sync(path)


def _flush_file_system(within: Path | str) -> bool:
    """Flush the whole file system. Return False if the system cannot do that."""
    fd = os.open(within, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flush_all(fd)
    finally:
        os.close(fd)


def unwritable(error: OSError) -> Failure:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable("history", "the disk is full", remedy="free some space and try again")
    return Unavailable(
        "history", error.strerror or str(error), remedy="check that you own the home directory"
    )


def _write_temporary(directory: str, framed: bytes) -> str:
    temporary = f"{directory}/{_TEMPORARY}{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o444)
    except FileNotFoundError:
        os.makedirs(directory, mode=0o700, exist_ok=True)  # noqa: PTH103 - strings on the hot path
        fd = os.open(temporary, flags, 0o444)
    try:
        left = memoryview(zlib.compress(framed, _LEVEL))
        while left:
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)
    return temporary


def _framed(kind: bytes, data: bytes) -> bytes:
    return b"%s %d\0%s" % (kind, len(data), data)


def _parse_tree(tree: bytes) -> Entries:
    return {
        name.decode(): TreeEntry(mode.decode(), ObjectId(of.hex()))
        for mode, name, of in _ENTRY.findall(tree)
        if mode
    }


def _damaged_history(directory: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"history {directory.parent.name}",
        reason,
        remedy="restore the history from S3 or from a copy of the home",
    )


def _tree_order(item: tuple[str, TreeEntry]) -> bytes:
    """Return git's sort key of an entry. Git sorts a directory as if its name ended with a slash."""
    name, entry = item
    return name.encode() + (b"/" if entry.mode == TREE_MODE else b"")
