"""Define the port of a live tree: files that an editor or a shell may write at any moment, without any lock.

A program that replaces such a file cannot know the file's content until it has taken the file out. So beside
the tree there is a place, `aside`, with files under labels. Four moves lead between the tree and that place,
each a single step of the file system. No move unlinks a file that was in the tree. The file lies aside,
under its label, until a caller has read it and discards it. After a crash the labels tell what became of a
replacement, so there is no journal. A *staged* file has no label. Nothing depends on it, and it may be
written long before it is known to be needed.

A label names the content expected to come out, the content to go in, and the path:

    out:<git's id of the expected content>:<16 hex of the new content>:<8 hex, random><mark>:<path, / as :>

The mark is `+` if the file under the label certainly was in the tree, else `-`.
A path cannot contain a `:`. A path that makes the label too long for a file name is replaced by its hash.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NewType, Protocol

from workspaces.errors import Refused
from workspaces.history.git.objects import ObjectId
from workspaces.ids import Version
from workspaces.localfs.permissions import DiskUsage
from workspaces.paths import WorkspacePath
from workspaces.storage.blobs import BlobName, BlobStore, Stat

Label = NewType("Label", str)
Staged = NewType("Staged", str)
"""The name of a file aside that has no label."""

Examine = Callable[[BlobName], tuple[bytes, os.stat_result]]

LABEL_PREFIX = "out:"
LABEL_BYTES_MAX = 255
NOTHING = "0" * 16
"""The new content of a deletion. Also used once a replaced file was merged back, and the new content no
longer matters."""

_HASHED = "#"
_UNCERTAIN, _CERTAIN = "-", "+"


class StagingArea(Protocol):
    """The place beside a tree, and the moves between the two."""

    def stage(self, data: bytes) -> Staged:
        """Write a file aside. It need not survive a crash. The caller needs no lock, even if another process
        holds it."""
        ...

    def unstage(self) -> None:
        """Remove all staged files, of this caller and others: only one caller at a time may stage. Files that
        others have confirmed without staging them stay."""
        ...

    def confirm(self, files: Sequence[bytes | Staged]) -> list[Staged]:
        """Make files survive a power cut, so that they may enter where there is no file. Bytes are put aside
        first."""
        ...

    def prepare(self, files: Mapping[Label, bytes | Staged]) -> None:
        """Write complete, durable files aside. A file gets its label only once it is complete."""
        ...

    def exchange(self, label: Label, path: WorkspacePath) -> None:
        """Exchange the two files.

        Raises: NotFound when there is no file at the path.
        """
        ...

    def enter(self, label: Label | Staged, path: WorkspacePath) -> None:
        """Move a file into the tree, where there must be no file.

        Raises: AlreadyExists when there is one, Refused when no file can be there.
        """
        ...

    def take(self, path: WorkspacePath, label: Label) -> None:
        """Move a file out of the tree.

        Raises: NotFound when there is no file at the path.
        """
        ...

    def flush(self, paths: Collection[WorkspacePath]) -> None:
        """Make the moves at these paths survive a power cut."""
        ...

    def look(self, label: Label) -> bytes | None:
        """Return the present content of a file aside. Return None if it is gone, or is no file we can
        read."""
        ...

    def labels(self) -> list[Label]: ...

    def relabel(self, label: Label, new: Label) -> None:
        """Give a file aside another label."""
        ...

    def discard(self, label: Label | Staged) -> None: ...


class LiveTree(BlobStore, StagingArea, Protocol):
    """A store whose blobs are the files of a directory. A file's token is its version."""

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield every entry, ascending by name, valid or not. A directory comes before its entries, and so
        does the root, whose name is "". A store without directories yields none."""
        ...

    def stats(self, names: Collection[str]) -> dict[str, os.stat_result]:
        """Return the stats of those entries that exist, as `walk` would yield them."""
        ...

    def examining(self) -> AbstractContextManager[Examine]:
        """Give a function that reads one file after the other, like `read`, and returns each with its stat.
        The stat is that of the very file that was read. Another file may have the name by now, or may have
        had it during `walk`. Reading the files of one directory in sequence is fastest."""
        ...

    def find(self, directory: str, matches: Callable[[str], bool]) -> Iterator[Stat]:
        """Yield the files that a scan finds below a directory ("" is the root) whose names match, in no
        order."""
        ...

    def mend(self) -> DiskUsage:
        """Repair what a command may have left: modes, and owners if we run as root. Return the disk usage of
        the tree."""
        ...

    def is_at(self, root: Path) -> bool:
        """Return True if `root` still names this directory."""
        ...

    def identity(self) -> str:
        """Return an id of this directory. Another directory has another id."""
        ...


@dataclass(frozen=True, slots=True)
class Displaced:
    """The parts of a label."""

    expected: ObjectId
    went_in: str
    has_come_out: bool
    """True if the file certainly was in the tree."""
    path: str
    """The path, or `#` and its hash."""

    def is_of(self, path: WorkspacePath) -> bool:
        return self.path in {path, _hashed(path)}


def label_of(path: WorkspacePath, expected: ObjectId, went_in: Version | None, nonce: str) -> Label:
    head = f"{LABEL_PREFIX}{expected}:{went_in[:16] if went_in else NOTHING}:{nonce}{_UNCERTAIN}:"
    label = head + path.replace("/", ":")
    if len(label.encode()) > LABEL_BYTES_MAX:
        label = head + _hashed(path)
    return Label(label)


def mark_replaced(label: Label, *, is_certain: bool = True) -> Label:
    """Return the label with the mark that the file was in the tree, or with the mark that this is
    uncertain."""
    mark = _CERTAIN if is_certain else _UNCERTAIN
    return _renamed(label, lambda nonce: nonce.rstrip(_UNCERTAIN + _CERTAIN) + mark)


def another(label: Label) -> Label:
    """Return a new label for a file whose label another file has now. The new mark says that nothing is known
    to have come out."""
    return _renamed(label, lambda _: secrets.token_hex(4) + _UNCERTAIN)


def _renamed(label: Label, new: Callable[[str], str]) -> Label:
    """Return the label with its nonce and mark replaced."""
    *head, nonce, path = label.split(":", 4)
    return Label(":".join([*head, new(nonce), path]))


def displaced_by(label: Label) -> Displaced | None:
    """Return the parts of a label, or None if it is not one of our labels."""
    parts = label.removeprefix(LABEL_PREFIX).split(":", 3)
    if not label.startswith(LABEL_PREFIX) or len(parts) != 4:
        return None
    expected, went_in, nonce, hashed_or_path = parts
    path = hashed_or_path.replace(":", "/")
    try:
        path = path if hashed_or_path[0] == _HASHED else WorkspacePath(path)
        return Displaced(ObjectId(expected), went_in, nonce.endswith(_CERTAIN), path)
    except (Refused, IndexError):
        return None


def _hashed(path: WorkspacePath) -> str:
    return _HASHED + sha256(path.encode()).hexdigest()
