"""Changed files onto a tree of git's: only the directories on their way are written anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from workspaces.history.git.objects import (
    FILE_MODE,
    TREE_MODE,
    Entries,
    GitObjects,
    ObjectBatch,
    ObjectId,
    TreeEntry,
)
from workspaces.paths import WorkspacePath

After: TypeAlias = "bytes | ObjectId | None"
"""What a file becomes: bytes, what an object that is there already holds, or None: it goes."""

_Nested: TypeAlias = "dict[str, After | _Nested]"
_Change: TypeAlias = "After | _Nested"


def replace_files(
    changes: Mapping[WorkspacePath, After],
    base: ObjectId | None,
    objects: GitObjects,
    batch: ObjectBatch,
) -> ObjectId:
    """The tree `base` with these files set or, with None, removed."""
    return _write_tree(base, _nested(changes), objects, batch) or batch.tree({})


def _write_tree(
    base: ObjectId | None, changes: _Nested, objects: GitObjects, batch: ObjectBatch
) -> ObjectId | None:
    """None when nothing is left in it."""
    entries: Entries = objects.entries(base) if base else {}
    for name, change in changes.items():
        written = _write_entry(entries.get(name), change, objects, batch)
        if written is None:
            entries.pop(name, None)
        else:
            entries[name] = written
    return batch.tree(entries) if entries else None


def _write_entry(
    old: TreeEntry | None, change: _Change, objects: GitObjects, batch: ObjectBatch
) -> TreeEntry | None:
    if change is None:
        return None
    if isinstance(change, bytes):
        return TreeEntry(FILE_MODE, batch.blob(change))
    if isinstance(change, str):
        return TreeEntry(FILE_MODE, change)
    below = old.id if old and old.mode == TREE_MODE else None
    tree = _write_tree(below, change, objects, batch)
    return TreeEntry(TREE_MODE, tree) if tree else None


def _nested(changes: Mapping[WorkspacePath, After]) -> _Nested:
    """`{"notes/a.md": …}` as `{"notes": {"a.md": …}}`: the shape that trees are written in. What goes
    comes first: a file may have the place of a directory now, or a directory that of a file."""
    root: _Nested = {}
    for path, after in sorted(changes.items(), key=lambda change: change[1] is not None):
        *directories, leaf = path.split("/")
        here = root
        for directory in directories:
            below = here.setdefault(directory, {})
            if not isinstance(below, dict):  # a file that goes, and a directory in its place
                below = here[directory] = {}
            here = below
        here[leaf] = after
    return root
