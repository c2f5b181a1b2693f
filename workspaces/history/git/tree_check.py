"""Check the names in untrusted git trees, and find their directories.

In thousands of revisions nearly every directory repeats an earlier one with a single object replaced: the
same bytes except for ids. So a tree whose bytes outside the ids equal those of a checked tree has the same
names, and is not parsed again. Comparing the two as masked integers takes a tenth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from workspaces.errors import Refused
from workspaces.history.git.objects import FILE_MODE, TREE_MODE, ObjectId
from workspaces.paths import broken_rule

KEPT_MAX = 512
"""Checked trees in the cache. When it is full, it is emptied."""

KEPT_BYTES_MAX = 32 * 1024
"""Largest tree that enters the cache: a directory of a thousand files."""

_ENTRY = re.compile(rb"([0-7]++) ([^\0]*+)\0(.{20})|.+", re.DOTALL)
"""Mode, name, id. An invalid rest matches whole, so that the search does not go on inside it."""
_FILE, _TREE = FILE_MODE.encode(), TREE_MODE.encode()
_ID_BYTES = 20


class TreeSize(NamedTuple):
    """The number of files in a tree and the size of its longest path."""

    files: int
    parts: int
    """Path parts of its deepest path."""
    bytes: int
    """Bytes of its longest path."""

    def with_directory(self, length: int, below: TreeSize) -> TreeSize:
        """Return the size with a directory of size `below` added, whose name has `length` bytes."""
        return TreeSize(
            self.files + below.files,
            max(self.parts, 1 + below.parts),
            max(self.bytes, length + 1 + below.bytes),
        )


class TreeNames(NamedTuple):
    """The names in a tree, reduced to sizes and the positions of its directories."""

    extent: TreeSize
    """Size of the direct entries."""
    directories: tuple[tuple[int, int], ...] = ()
    """For each directory, the length of its name and the offset of its id."""

    def below(self, tree: bytes) -> Iterator[tuple[int, ObjectId]]:
        """Yield the directories of a tree with these names: length of the name, and tree id."""
        for length, begin in self.directories:
            yield length, ObjectId(tree[begin : begin + _ID_BYTES].hex())


class TreeChecker:
    """A checker of untrusted trees, with a cache of the trees that it has checked."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[int, int, TreeNames]] = {}
        """The last tree of each size in bytes: the mask of the bits outside ids, those bits, the names."""
        self._names: set[bytes] = set()
        """Names that passed the check."""

    def check(self, tree: bytes) -> TreeNames:
        """Check a tree that git has found well-formed, and return its names.

        Raises: Refused when it holds anything but regular files and directories, or a name that is no
        valid part of a workspace path."""
        size = len(tree)
        if size > KEPT_BYTES_MAX:
            return self._parse(tree)[0]
        bits = int.from_bytes(tree, "little")
        cached = self._cache.get(size)
        if cached is not None and bits & cached[0] == cached[1]:  # the same names, other ids
            return cached[2]
        names, ids = self._parse(tree)
        outside = bytearray(b"\xff" * size)
        for begin in ids:
            outside[begin : begin + _ID_BYTES] = bytes(_ID_BYTES)
        mask = int.from_bytes(outside, "little")
        if len(self._cache) >= KEPT_MAX:
            self._cache.clear()
        self._cache[size] = (mask, bits & mask, names)
        return names

    def _parse(self, tree: bytes) -> tuple[TreeNames, list[int]]:
        """Return the checked names of a tree, and the offsets of its ids."""
        files = longest = 0
        directories: list[tuple[int, int]] = []
        ids: list[int] = []
        for entry in _ENTRY.finditer(tree):
            mode, name, begin = entry[1], entry[2], entry.start(3)
            if mode is None:
                raise Refused("bundle", tree[:40], "is an invalid tree")
            if name not in self._names:
                _check_name(name)
                self._names.add(name)
            if mode == _TREE:
                directories.append((len(name), begin))
            elif mode == _FILE:
                files += 1
            else:
                rule = f"has mode {mode.decode()}: not a regular file"
                raise Refused("bundle", name.decode(), rule)
            longest = max(longest, len(name))
            ids.append(begin)
        return TreeNames(TreeSize(files, 1, longest), tuple(directories)), ids


def _check_name(name: bytes) -> None:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise Refused("bundle", name.decode(errors="replace"), "is not valid UTF-8") from None
    rule = "contains a slash" if "/" in text else broken_rule(text)
    if rule is not None:
        raise Refused("bundle", text, rule)
