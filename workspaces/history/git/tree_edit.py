"""Apply changed files to a git tree. Only the directories on their paths are written again."""

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
"""The new state of a file: its bytes, the id of an existing blob, or None if the file is removed."""

_Nested: TypeAlias = "dict[str, After | _Nested]"
_Change: TypeAlias = "After | _Nested"


def replace_files(
    changes: Mapping[WorkspacePath, After],
    base: ObjectId | None,
    objects: GitObjects,
    batch: ObjectBatch,
) -> ObjectId:
    """Return a tree: `base` with these files set, or removed where the value is None."""
    return _write_tree(base, _nest(changes), objects, batch) or batch.tree({})


def _write_tree(
    base: ObjectId | None, changes: _Nested, objects: GitObjects, batch: ObjectBatch
) -> ObjectId | None:
    """Write a directory with its changes. Return None if it is empty afterwards."""
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


def _nest(changes: Mapping[WorkspacePath, After]) -> _Nested:
    """Turn `{"notes/a.md": …}` into `{"notes": {"a.md": …}}`, the form in which trees are written. Removals
    come first, because a file may now have the name of a directory, or a directory that of a file."""
    root: _Nested = {}
    for path, after in sorted(changes.items(), key=lambda change: change[1] is not None):
        *directories, leaf = path.split("/")
        current = root
        for directory in directories:
            below = current.setdefault(directory, {})
            if not isinstance(below, dict):  # a removed file: a directory takes its name
                below = current[directory] = {}
            current = below
        current[leaf] = after
    return root
