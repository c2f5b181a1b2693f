"""The port of a live tree: files in which an editor or a shell writes at any moment, without asking.

Whoever replaces such a file cannot know what is there until it has come out. So beside the tree there is
a place, `aside`, with files under labels, and four moves between the two, each of which the file system
makes in one step. Nothing that was in the tree is ever unlinked by a move: it lies aside, under its label,
until somebody has looked at it and discards it. What became of a swap after a crash is read from the
labels; there is no journal. What is *staged* has no label: nothing depends on it, and it may be written long
before anybody knows whether it will be wanted.

A label says what was expected to come out, what is to go in, and the path:

    out:<git's id of what was expected>:<16 hex of what goes in>:<8 hex, anything><mark>:<path, / as :>

The mark is `+` where it is certain that what lies there was in the tree, else `-`.
A path cannot hold a `:`. One that makes the label too long for a file's name is replaced by its hash.
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
"""The name of a file aside that is under no label."""

Examine = Callable[[BlobName], tuple[bytes, os.stat_result]]

LABEL_PREFIX = "out:"
LABEL_BYTES_MAX = 255
NOTHING = "0" * 16
"""Went in: a deletion; or what came out has been given back, and nothing more is known of what went in."""

_HASHED = "#"
_GOING_IN, _CAME_OUT = "-", "+"


class StagingArea(Protocol):
    """The place beside a tree, and the moves between the two."""

    def stage(self, data: bytes) -> Staged:
        """A file aside. It need not survive a crash, and may be made while somebody else has the lock."""
        ...

    def unstage(self) -> None:
        """Away with all that was staged, by whomever: only one at a time may stage. What others have
        confirmed without staging it stays."""
        ...

    def confirm(self, files: Sequence[bytes | Staged]) -> list[Staged]:
        """From here on these survive a power cut, and may enter where nothing is. Bytes are put
        aside first."""
        ...

    def prepare(self, files: Mapping[Label, bytes | Staged]) -> None:
        """Whole, durable files aside. Until one is whole it is under no label."""
        ...

    def exchange(self, label: Label, path: WorkspacePath) -> None:
        """The two files change places. NotFound when there is none at the path."""
        ...

    def enter(self, label: Label | Staged, path: WorkspacePath) -> None:
        """Into the tree, where nothing may be. AlreadyExists; Refused where no file can be."""
        ...

    def take(self, path: WorkspacePath, label: Label) -> None:
        """Out of the tree. NotFound when there is none at the path."""
        ...

    def flush(self, paths: Collection[WorkspacePath]) -> None:
        """From here on the moves at these paths survive a power cut."""
        ...

    def look(self, label: Label) -> bytes | None:
        """What lies aside now; None for what is gone, or no file of ours to read."""
        ...

    def labels(self) -> list[Label]: ...

    def relabel(self, label: Label, new: Label) -> None:
        """What lies aside says something else from now on."""
        ...

    def discard(self, label: Label | Staged) -> None: ...


class LiveTree(BlobStore, StagingArea, Protocol):
    """A store whose blobs are the files of a directory. The token of one is its version."""

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Everything, ascending by name, good or not; a directory, the root too ("" is its name), comes
        before what lies in it. A store that has no directories tells of none."""
        ...

    def stats(self, names: Collection[str]) -> dict[str, os.stat_result]:
        """Of those that are there, as `walk` would tell of them."""
        ...

    def examining(self) -> AbstractContextManager[Examine]:
        """As `read`, of one file after the other, with what is told of the very file that was read: under its
        name another may lie by now, or may have lain when it was walked by. Neighbours come soonest one
        after the other."""
        ...

    def find(self, directory: str, matches: Callable[[str], bool]) -> Iterator[Stat]:
        """What a scan finds below a directory ("" is the root) under names that match, in no order."""
        ...

    def mend(self) -> DiskUsage:
        """Put right what a command may have left: modes, and as root owners. Return what the tree takes."""
        ...

    def is_at(self, root: Path) -> bool:
        """Whether this is still the directory found under `root`."""
        ...

    def identity(self) -> str:
        """Which directory this is: another one has another identity."""
        ...


@dataclass(frozen=True, slots=True)
class Displaced:
    """What a label says."""

    expected: ObjectId
    went_in: str
    has_come_out: bool
    """For certain."""
    path: str
    """A path, or `#` and its hash."""

    def is_of(self, path: WorkspacePath) -> bool:
        return self.path in {path, _hashed(path)}


def label_of(path: WorkspacePath, expected: ObjectId, went_in: Version | None, nonce: str) -> Label:
    head = f"{LABEL_PREFIX}{expected}:{went_in[:16] if went_in else NOTHING}:{nonce}{_GOING_IN}:"
    label = head + path.replace("/", ":")
    if len(label.encode()) > LABEL_BYTES_MAX:
        label = head + _hashed(path)
    return Label(label)


def mark_replaced(label: Label, *, is_certain: bool = True) -> Label:
    """The label of the same once that is known, or not known any more."""
    mark = _CAME_OUT if is_certain else _GOING_IN
    return _renamed(label, lambda nonce: nonce.rstrip(_GOING_IN + _CAME_OUT) + mark)


def another(label: Label) -> Label:
    """For what had this one, where something else has it now. Nothing is known to have come out."""
    return _renamed(label, lambda _: secrets.token_hex(4) + _GOING_IN)


def _renamed(label: Label, new: Callable[[str], str]) -> Label:
    """With another nonce and mark in the place of those that it has."""
    *head, nonce, path = label.split(":", 4)
    return Label(":".join([*head, new(nonce), path]))


def displaced_by(label: Label) -> Displaced | None:
    """None for what is no label of ours."""
    parts = label.removeprefix(LABEL_PREFIX).split(":", 3)
    if not label.startswith(LABEL_PREFIX) or len(parts) != 4:
        return None
    expected, went_in, nonce, told = parts
    path = told.replace(":", "/")
    try:
        path = path if told[0] == _HASHED else WorkspacePath(path)
        return Displaced(ObjectId(expected), went_in, nonce.endswith(_CAME_OUT), path)
    except (Refused, IndexError):
        return None


def _hashed(path: WorkspacePath) -> str:
    return _HASHED + sha256(path.encode()).hexdigest()
