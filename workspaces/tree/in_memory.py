"""Keep a live tree in memory: the same as `FileBlobs` on a disk, for as long as the object lives.

It has inodes. So a program that opened a file before it was displaced goes on writing to the displaced
file. Its time stamps are as coarse as the caller asks for, so that tests catch code that trusts them.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workspaces.clock import Clock
from workspaces.conditions import is_met
from workspaces.errors import AlreadyExists, Conflict, NotFound, Refused
from workspaces.ids import version_of
from workspaces.localfs.permissions import DiskUsage
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import NO_META, Blob, BlobName, Expect, Meta, Stat, Token, check_name
from workspaces.tree.port import Examine, Label, Staged


@dataclass(slots=True)
class Inode:
    number: int
    data: bytes
    changed_ns: int


class MemoryTree:
    def __init__(self, clock: Clock, *, grain_s: float = 0.0, identity: str = "memory") -> None:
        """`grain_s` is the resolution of the time stamps."""
        self._clock = clock
        self._grain_ns = int(grain_s * 10**9)
        self._identity = identity
        self._numbers = itertools.count(1)
        self.files: dict[str, Inode] = {}
        self.aside: dict[str, Inode] = {}
        self.staged: dict[str, Inode] = {}

    def put(self, path: str, data: bytes) -> None:
        """Save as an editor does: replace the old file by a new one."""
        self.files[path] = self._new(data)

    def change(self, inode: Inode, data: bytes) -> None:
        """Write as a shell does: into the file it has open, wherever that file is now."""
        inode.data = data
        inode.changed_ns = self._now_ns()

    def read(self, name: BlobName) -> Blob:
        data, _ = self.examine(name)
        return Blob(name, data, Token(version_of(data)))

    @contextmanager
    def examining(self) -> Generator[Examine]:
        yield self.examine

    def examine(self, name: BlobName) -> tuple[bytes, os.stat_result]:
        inode = self.files.get(check_name(name))
        if inode is None:
            raise NotFound("file", name)
        return inode.data, _status(inode)

    def write(self, name: BlobName, data: bytes, *, expect: Expect, meta: Meta = NO_META) -> Token:
        del meta
        self._check(name, expect)
        self._check_place(name)
        self.put(name, data)
        return Token(version_of(data))

    def delete(self, name: BlobName, *, expect: Expect) -> None:
        self._check(name, expect)
        self.files.pop(name, None)

    def scan(self, prefix: str = "") -> Iterator[Stat]:
        for name in sorted(self.files):
            if name.startswith(prefix):
                yield Stat(name, len(self.files[name].data), None)

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        for name in sorted(self.files):
            inode = self.files.get(name)
            if inode is not None:
                yield name, _status(inode)

    def stats(self, names: Collection[str]) -> dict[str, os.stat_result]:
        inodes = {name: self.files.get(name) for name in names}
        return {name: _status(inode) for name, inode in inodes.items() if inode is not None}

    def find(self, directory: str, matches: Callable[[str], bool]) -> Iterator[Stat]:
        inside = f"{directory}/" if directory else ""
        return (stat for stat in self.scan(inside) if matches(stat.name))

    def mend(self) -> DiskUsage:
        """Return the disk usage of the files. There is no mode or owner to repair."""
        return DiskUsage(len(self.files), sum(len(entry.data) for entry in self.files.values()))

    def is_at(self, root: Path) -> bool:
        del root
        return True

    def identity(self) -> str:
        return self._identity

    def stage(self, data: bytes) -> Staged:
        inode = self._new(data)
        staged = Staged(f"come-{inode.number}")
        self.staged[staged] = inode
        return staged

    def unstage(self) -> None:
        for staged in self.on_its_way():
            del self.staged[staged]

    def on_its_way(self) -> list[Staged]:
        return [Staged(name) for name in self.staged if name.startswith("come-")]

    def confirm(self, files: Sequence[bytes | Staged]) -> list[Staged]:
        """Do what the port asks, but without durability: nothing in memory survives a power cut."""
        return [self._confirm_one(data) if isinstance(data, bytes) else data for data in files]

    def _confirm_one(self, data: bytes) -> Staged:
        inode = self._new(data)
        staged = Staged(f"new-{inode.number}")
        self.staged[staged] = inode
        return staged

    def prepare(self, files: Mapping[Label, bytes | Staged]) -> None:
        for label, data in files.items():
            is_new = isinstance(data, bytes)
            self.aside[label] = self._new(data) if is_new else self.staged.pop(data)

    def flush(self, paths: Collection[WorkspacePath]) -> None:
        pass

    def exchange(self, label: Label, path: WorkspacePath) -> None:
        if path not in self.files:
            raise NotFound("file", path)
        self.files[path], self.aside[label] = self.aside[label], self.files[path]

    def enter(self, label: Label | Staged, path: WorkspacePath) -> None:
        if path in self.files:
            raise AlreadyExists("file", path)
        self._check_place(path)
        self.files[path] = (self.staged if label in self.staged else self.aside).pop(label)

    def take(self, path: WorkspacePath, label: Label) -> None:
        if path not in self.files:
            raise NotFound("file", path)
        self.aside[label] = self.files.pop(path)

    def look(self, label: Label) -> bytes | None:
        inode = self.aside.get(label)
        return None if inode is None else inode.data

    def labels(self) -> list[Label]:
        return sorted(Label(label) for label in self.aside)

    def relabel(self, label: Label, new: Label) -> None:
        self.aside[new] = self.aside.pop(label)

    def discard(self, label: Label | Staged) -> None:
        self.aside.pop(label, None)
        self.staged.pop(label, None)

    def close(self) -> None:
        pass

    def _new(self, data: bytes) -> Inode:
        return Inode(next(self._numbers), data, self._now_ns())

    def _now_ns(self) -> int:
        now = int(self._clock.now().timestamp() * 10**9)
        return now - now % self._grain_ns if self._grain_ns else now

    def _check(self, name: BlobName, expect: Expect) -> None:
        inode = self.files.get(check_name(name))
        token = Token(version_of(inode.data)) if inode else None
        if not is_met(expect, token):
            raise Conflict("file", name, expected=expect, actual=token)

    def _check_place(self, path: str) -> None:
        """Refuse a path that names a directory or leads through a file: no file can be there."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts)))
        if any(entry in self.files for entry in above):
            raise Refused("path", path, "has a file where a directory must be")
        if any(name.startswith(f"{path}/") for name in self.files):
            raise Refused("path", path, "is not a regular file")


def _status(inode: Inode) -> os.stat_result:
    seconds = inode.changed_ns / 10**9
    plain = (stat.S_IFREG | 0o600, inode.number, 1, 1, 0, 0, len(inode.data), *(seconds,) * 3)
    exact = {"st_mtime_ns": inode.changed_ns, "st_ctime_ns": inode.changed_ns}
    return os.stat_result(plain, exact)
