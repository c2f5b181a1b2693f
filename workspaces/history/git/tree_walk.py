"""Walk git trees: every file below one, and the files in which two differ. Equal directories are not read."""

from __future__ import annotations

from collections.abc import Iterator

from workspaces.history.git.objects import TREE_MODE, GitObjects, ObjectId
from workspaces.paths import WorkspacePath


def files_below(
    objects: GitObjects, tree: ObjectId, prefix: str = ""
) -> list[tuple[WorkspacePath, ObjectId]]:
    """Return every file of a tree with its blob, in no order."""
    files: list[tuple[WorkspacePath, ObjectId]] = []
    for name, entry in objects.entries(tree).items():
        if entry.mode == TREE_MODE:
            files += files_below(objects, entry.id, f"{prefix}{name}/")
        else:
            files.append((WorkspacePath(prefix + name), entry.id))
    return files


def differing_files(
    objects: GitObjects, older: ObjectId | None, newer: ObjectId | None, prefix: str = ""
) -> Iterator[tuple[WorkspacePath, tuple[ObjectId | None, ObjectId | None]]]:
    """Yield each path whose blob differs, with its older and newer blob. None stands for no file."""
    if older == newer:
        return
    before = objects.entries(older) if older else {}
    after = objects.entries(newer) if newer else {}
    for name in sorted({name for name, _ in before.items() ^ after.items()}):
        pair = (before.get(name), after.get(name))
        files = [one.id if one and one.mode != TREE_MODE else None for one in pair]
        trees = [one.id if one and one.mode == TREE_MODE else None for one in pair]
        if files[0] != files[1]:
            yield WorkspacePath(prefix + name), (files[0], files[1])
        if trees[0] != trees[1]:
            yield from differing_files(objects, trees[0], trees[1], f"{prefix}{name}/")
