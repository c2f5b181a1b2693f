"""The shape of a tree: which names it has, and which of them are directories, whatever they hold.

Of thousands of revisions nearly every directory is one that was there before, with another object in the
place of one: the same bytes but for ids. So a tree whose bytes outside of its ids are those of one that was
looked at has the same entries, and is not taken apart again. Laid over each other as numbers, that is asked
in a tenth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from workspaces.errors import Refused
from workspaces.history.git.objects import FILE_MODE, TREE_MODE, ObjectId
from workspaces.paths import broken_rule

KEPT_MAX = 512
"""Shapes; when there are so many all are forgotten."""

KEPT_BYTES_MAX = 32 * 1024
"""Of a tree whose shape is kept: a directory of a thousand files."""

_ENTRY = re.compile(rb"([0-7]++) ([^\0]*+)\0(.{20})|.+", re.DOTALL)
"""Mode, name, id. What is no entry is taken whole, so that nothing searches in it for the next."""
_FILE, _TREE = FILE_MODE.encode(), TREE_MODE.encode()
_ID_BYTES = 20


class TreeSize(NamedTuple):
    """How far a tree reaches."""

    files: int
    parts: int
    bytes: int
    """Of its longest path."""

    def over(self, length: int, below: TreeSize) -> TreeSize:
        """With a directory whose name has so many bytes."""
        return TreeSize(
            self.files + below.files,
            max(self.parts, 1 + below.parts),
            max(self.bytes, length + 1 + below.bytes),
        )


class TreeNames(NamedTuple):
    extent: TreeSize
    """Of what lies in it directly."""
    directories: tuple[tuple[int, int], ...] = ()
    """Of each the bytes of its name, and where its id begins."""

    def below(self, tree: bytes) -> Iterator[tuple[int, ObjectId]]:
        """The directories of a tree that has this shape: bytes of the name, and tree."""
        for length, begin in self.directories:
            yield length, ObjectId(tree[begin : begin + _ID_BYTES].hex())


class TreeChecker:
    """What strangers' trees look like."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, int, TreeNames]] = {}
        """By how many bytes a tree has, the last such one: which bits are not of ids, what they are."""
        self._names: set[bytes] = set()
        """Good ones."""

    def of(self, tree: bytes) -> TreeNames:
        """Refused where it holds anything but regular files and directories under names that are parts
        of a workspace's paths. git has found the tree to be well-formed."""
        size = len(tree)
        if size > KEPT_BYTES_MAX:
            return self._looked_at(tree)[0]
        bits = int.from_bytes(tree, "little")
        kept = self._kept.get(size)
        if kept is not None and bits & kept[0] == kept[1]:
            return kept[2]
        shape, ids = self._looked_at(tree)
        outside = bytearray(b"\xff" * size)
        for begin in ids:
            outside[begin : begin + _ID_BYTES] = bytes(_ID_BYTES)
        mask = int.from_bytes(outside, "little")
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[size] = (mask, bits & mask, shape)
        return shape

    def _looked_at(self, tree: bytes) -> tuple[TreeNames, list[int]]:
        """And where its ids begin."""
        files = longest = 0
        directories: list[tuple[int, int]] = []
        ids: list[int] = []
        for entry in _ENTRY.finditer(tree):
            mode, name, begin = entry[1], entry[2], entry.start(3)
            if mode is None:
                raise Refused("bundle", tree[:40], "holds a tree that is none")
            if name not in self._names:
                _check_name(name)
                self._names.add(name)
            if mode == _TREE:
                directories.append((len(name), begin))
            elif mode == _FILE:
                files += 1
            else:
                told = name.decode()
                raise Refused("bundle", told, f"has mode {mode.decode()}: no regular file")
            longest = max(longest, len(name))
            ids.append(begin)
        return TreeNames(TreeSize(files, 1, longest), tuple(directories)), ids


def _check_name(name: bytes) -> None:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise Refused("bundle", name.decode(errors="replace"), "is no UTF-8") from None
    rule = "contains a slash" if "/" in text else broken_rule(text)
    if rule is not None:
        raise Refused("bundle", text, rule)
