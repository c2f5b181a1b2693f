"""Git's objects as bytes: blobs, trees and commits, written durably and read wherever they lie.

Objects are named by their content, so writing one needs no lock and a crash leaves at worst some that
nothing points at. Each is made durable under a temporary name and only then given its own: whatever
has an object's name is whole, even after a power cut. `Batch` writes any number of them; after its
`sync` the names are durable too, and only then may a branch name one.

New objects are loose files, read here without help; many at once are a pack (`packfile`), which waits for
the disk twice instead of once for each. Packing (`pack`) moves them, at any moment, into one pack. Packs are
read by GitPython's object database; what is found nowhere is therefore looked for again with fresh eyes
before it is called missing.
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
from workspaces.history.git.packfile import Packed, fits, write_pack
from workspaces.localfs.safe_open import flush_all

ObjectId = NewType("ObjectId", str)
"""Git's name of a blob, tree or commit: not a Version, and never shown to strangers."""

FILE_MODE = "100644"
TREE_MODE = "40000"

LOOKS_MAX = 4
"""How often a missing object is looked for: each packing in between explains one miss."""

PACKED_FROM = 64
"""Objects of one batch. A revision of one file has four; a pack for each of those would be many packs."""

SYNCED_AT_ONCE = 32
"""From so many objects on, one flush of the whole file system is sooner done than one of each."""

TREES_KEPT = 8
"""The directories on the way to a file: a revision asks for each several times, and the next one for
those that it wrote. What has a name never changes, so there is nothing to invalidate."""

_ENTRY = re.compile(rb"([0-7]++) ([^\0]++)\0(.{20})|.+", re.DOTALL)
"""Of a tree, one after the other: mode, name, id. What is no entry is taken whole, as one without a mode,
so that nothing searches in it for the next."""
_TEMPORARY = "tmp_obj_"  # what `git prune` clears away
_LEVEL = zlib.Z_BEST_SPEED  # packing compresses again, and better


class TreeEntry(NamedTuple):
    mode: str
    id: ObjectId


Entries = dict[str, TreeEntry]
"""One directory: name → what is there."""


def blob_id(data: bytes) -> ObjectId:
    return _object_id(_framed(b"blob", data))


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
        raise _damaged(self._directory, f"its object {object_id} is missing")

    def entries(self, tree: ObjectId) -> Entries:
        with self._lock:
            found = self._trees.get(tree)
        if found is None:
            found = _parsed(self.read(tree))
            self._keep({tree: found})
        return dict(found)

    def batch(self) -> ObjectBatch:
        return ObjectBatch(self._directory, self._keep)

    def _keep(self, trees: Mapping[ObjectId, Entries]) -> None:
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
            raise _damaged(
                self._directory, f"its object {object_id} is unreadable ({error})"
            ) from error
        return framed[framed.index(b"\0") + 1 :]


class ObjectBatch:
    """Objects on their way to the disk: nothing is written before `sync`."""

    def __init__(
        self,
        directory: Path,
        written: Callable[[Mapping[ObjectId, Entries]], None] = lambda _: None,
    ) -> None:
        """`written` is told of the trees that can be read from now on."""
        self._directory = str(directory)
        self._held: dict[str, Packed] = {}
        self._trees: dict[ObjectId, Entries] = {}
        self._tell = written

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
        object_id = _object_id(_framed(kind.encode(), data))
        self._held[object_id] = Packed(kind, data)
        return object_id

    def sync(self) -> None:
        """Write them. From here on all of them can be read, and survive a power cut."""
        new = {
            one: held for one, held in self._held.items() if not os.path.lexists(self._path(one))
        }
        is_packed = len(new) >= PACKED_FROM and fits(new)
        loose = self._held.keys() - new.keys() if is_packed else self._held.keys()
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
        self._tell(self._trees)

    def _write_loose(self, objects: Mapping[str, Packed]) -> None:
        written: dict[str, str] = {}
        """Temporary name → the object's own."""
        for object_id, (kind, data) in objects.items():
            path = self._path(object_id)
            framed = _framed(kind.encode(), data)
            written[_write_temporary(path.rpartition("/")[0], framed)] = path
        _sync_all(written, self._directory)
        for temporary, path in written.items():
            os.rename(temporary, path)  # noqa: PTH104 - strings on the hot path

    def _path(self, object_id: str) -> str:
        """Of a loose object; a file with this name is whole, and was synced before it had it."""
        return f"{self._directory}/{object_id[:2]}/{object_id[2:]}"


class _Packs:
    """Packs come and go under a reader; its knowledge of them is thrown away to look `again`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._database: Any = None

    def read(self, object_id: str, *, again: bool) -> bytes | None:
        # imported here: most histories have no pack, and most commands read none
        from gitdb.db.pack import PackedDB  # pyright: ignore[reportMissingTypeStubs]
        from gitdb.exc import BadObject  # pyright: ignore[reportMissingTypeStubs]

        with self._lock:
            if self._database is None or again:
                self._database = PackedDB(str(self._directory))
            try:
                return _unpacked(self._database, bytes.fromhex(object_id))
            except (BadObject, OSError, ValueError, zlib.error):
                return None  # its pack has just gone, or is damaged


def _unpacked(database: Any, name: bytes) -> bytes | None:
    """What a delta builds on lies some bytes before it, or has a name of its own, whichever the one before
    it did: gitdb follows all of the first kind and then all of the second, and packs that were joined
    (`packfile`) have both in turn."""
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
    """Make a file's bytes, or a directory's names, survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_below(directory: Path) -> None:
    """Make a directory with all that lies in it survive a power cut."""
    if not _flush_file_system(directory):
        for path in (*directory.rglob("*"), directory):
            sync(path)


def _sync_all(paths: Collection[str], within: str) -> None:
    """Many of them in one step, where the system can."""
    if len(paths) >= SYNCED_AT_ONCE and _flush_file_system(within):
        return
    for path in paths:
        sync(path)


def _flush_file_system(within: Path | str) -> bool:
    """Return False where the system cannot."""
    fd = os.open(within, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flush_all(fd)
    finally:
        os.close(fd)


def unwritable(error: OSError) -> Failure:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable("history", "the disk is full", remedy="free some space and try again")
    return Unavailable(
        "history", error.strerror or str(error), remedy="check that the home belongs to you"
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


def _object_id(framed: bytes) -> ObjectId:
    return ObjectId(sha1(framed, usedforsecurity=False).hexdigest())


def _parsed(tree: bytes) -> Entries:
    return {
        name.decode(): TreeEntry(mode.decode(), ObjectId(of.hex()))
        for mode, name, of in _ENTRY.findall(tree)
        if mode
    }


def _damaged(directory: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"history {directory.parent.name}",
        reason,
        remedy="restore the history from S3 or from a copy of the home",
    )


def _tree_order(item: tuple[str, TreeEntry]) -> bytes:
    """Git sorts a directory as if its name ended with a slash."""
    name, entry = item
    return name.encode() + (b"/" if entry.mode == TREE_MODE else b"")
