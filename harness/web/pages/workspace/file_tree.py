"""The tree of files beside a file: the folders above it are open, all others are closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ENTRIES_MAX = 200
"""Entries of one folder on a page. The rest comes in further pages, so that no page gets heavy."""


@dataclass(slots=True)
class TreeFolder:
    """One open folder, with its entries in order: folders first."""

    path: str
    folders: list[tuple[str, TreeFolder | None]] = field(
        default_factory=list[tuple[str, "TreeFolder | None"]]
    )
    """The names of the folders in it, each with its content if it is open."""
    files: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """The names and sizes of the files in it."""
    following: str = ""
    """The name after which the next page begins; empty if all are shown."""


def folder_of(sizes: Mapping[str, int], here: str, after: str = "") -> TreeFolder:
    """Return the root folder, open along the path `here`.

    `after` is the name after which the innermost open folder is shown.
    """
    open_at = _open_folders(sizes, here)
    return _read(sizes, "", open_at, after)


def is_folder(paths: Iterable[str], path: str) -> bool:
    return any(one.startswith(f"{path}/") for one in paths)


def _open_folders(sizes: Mapping[str, int], here: str) -> list[str]:
    parts = here.split("/") if here else []
    if here in sizes:  # a file: the folders above it are open
        parts = parts[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]


def _read(sizes: Mapping[str, int], path: str, open_at: list[str], after: str) -> TreeFolder:
    prefix = f"{path}/" if path else ""
    folders, files = set[str](), list[tuple[str, int]]()
    for one, size in sizes.items():
        if not one.startswith(prefix):
            continue
        name, slash, _ = one[len(prefix) :].partition("/")
        if slash:
            folders.add(name)
        else:
            files.append((name, size))
    is_innermost = path == (open_at[-1] if open_at else "")
    shown = TreeFolder(path)
    names = sorted(folders)
    room = ENTRIES_MAX
    if is_innermost and after:
        names = [] if after in dict(files) else [name for name in names if name > after]
        files = [one for one in files if one[0] > after or after in folders]
    for name in names[:room]:
        inner = f"{prefix}{name}"
        opened = _read(sizes, inner, open_at, after) if inner in open_at else None
        shown.folders.append((name, opened))
    room -= len(shown.folders)
    shown.files = files[:room]
    if len(names) + len(files) > ENTRIES_MAX:
        shown.following = shown.files[-1][0] if shown.files else shown.folders[-1][0]
    return shown
