"""Git's objects as bytes: blobs, trees and commits, read through GitPython's object database and
written durably.

Objects are named by their content, so writing one needs no lock and a crash leaves at worst some that
nothing points at. `Batch` writes any number of them and makes all durable at once, file by file and
then directory by directory; only after `sync` may a branch name one.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from hashlib import sha1
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, NewType

from gitdb import IStream  # pyright: ignore[reportMissingTypeStubs]
from gitdb.db import GitDB  # pyright: ignore[reportMissingTypeStubs]
from gitdb.exc import BadObject  # pyright: ignore[reportMissingTypeStubs]

from workspaces.errors import Failure, Unavailable

ObjectId = NewType("ObjectId", str)
"""Git's name of a blob, tree or commit: not a Version, and never shown to strangers."""

FILE_MODE = "100644"
TREE_MODE = "40000"

_ID_BYTES = 20


class Entry(NamedTuple):
    mode: str
    id: ObjectId


Entries = dict[str, Entry]
"""One directory: name → what is there."""


def blob_id(data: bytes) -> ObjectId:
    return ObjectId(sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest())


class Objects:
    """The objects directory of one git directory. Threads may share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._database: Any = GitDB(str(directory))
        self._lock = threading.Lock()

    def read(self, object_id: str) -> bytes:
        with self._lock:
            try:
                return self._database.stream(bytes.fromhex(object_id)).read()
            except BadObject:
                raise Unavailable(
                    f"history {self._directory.parent.name}",
                    f"its object {object_id} is missing",
                    remedy="restore the history from S3 or from a copy of the home",
                ) from None

    def entries(self, tree: ObjectId) -> Entries:
        data = self.read(tree)
        found: Entries = {}
        position = 0
        while position < len(data):
            nul = data.index(b"\0", position)
            mode, _, name = data[position:nul].partition(b" ")
            position = nul + 1 + _ID_BYTES
            found[name.decode()] = Entry(mode.decode(), ObjectId(data[nul + 1 : position].hex()))
        return found

    def batch(self) -> Batch:
        return Batch(self._directory, self._store)

    def _store(self, kind: bytes, data: bytes) -> ObjectId:
        with self._lock:
            try:
                stored = self._database.store(IStream(kind, len(data), BytesIO(data)))
            except OSError as error:
                raise unwritable(error) from error
            return ObjectId(stored.hexsha.decode())


class Batch:
    """Objects on their way to the disk."""

    def __init__(self, directory: Path, store: Any) -> None:
        self._directory = directory
        self._store = store
        self._written: set[ObjectId] = set()

    def blob(self, data: bytes) -> ObjectId:
        return self._write(b"blob", data)

    def tree(self, entries: Mapping[str, Entry]) -> ObjectId:
        parts: list[bytes] = []
        for name, entry in sorted(entries.items(), key=_tree_order):
            parts.append(f"{entry.mode} {name}\0".encode() + bytes.fromhex(entry.id))
        return self._write(b"tree", b"".join(parts))

    def commit(self, data: bytes) -> ObjectId:
        return self._write(b"commit", data)

    def sync(self) -> None:
        files = [self._directory / object_id[:2] / object_id[2:] for object_id in self._written]
        try:
            for path in [*files, *{file.parent for file in files}, self._directory]:
                sync(path)
        except OSError as error:
            raise unwritable(error) from error

    def _write(self, kind: bytes, data: bytes) -> ObjectId:
        object_id = self._store(kind, data)
        self._written.add(object_id)
        return object_id


def sync(path: Path) -> None:
    """Make a file's bytes, or a directory's names, survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unwritable(error: OSError) -> Failure:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable("history", "the disk is full", remedy="free some space and try again")
    return Unavailable(
        "history", error.strerror or str(error), remedy="check that the home belongs to you"
    )


def _tree_order(item: tuple[str, Entry]) -> bytes:
    """Git sorts a directory as if its name ended with a slash."""
    name, entry = item
    return name.encode() + (b"/" if entry.mode == TREE_MODE else b"")
