"""The trash of a home: files and history of deleted workspaces, until a person empties it.

Each workspace has a directory with a note: its id, its name, and the reason. The note is written first. From
then on a process that finds the tree still in its place knows that it continues an interrupted disposal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from workspaces.home.layout import Home
from workspaces.ids import Namespace
from workspaces.localfs.safe_open import as_failure

NOTE = "note.json"
FILES = "files"
HISTORY = "history.git"

NOTE_BYTES_MAX = 4 * 2**20
"""Enough for ten thousand long paths. This program writes no larger note."""

Why = Literal["here", "elsewhere", "over"]
"""Deleted on this machine; deleted on another machine; or deleted and created again since."""


@dataclass(frozen=True, slots=True)
class TrashEntry:
    place: Path
    id: str
    name: str
    why: Why
    unpushed: tuple[str, ...] = ()
    """Local changes that never reached the other machines. Empty for a deletion on this machine."""

    @property
    def files(self) -> Path:
        return self.place / FILES


def begin_disposal(home: Home, namespace: Namespace, entry: TrashEntry) -> None:
    """Write only the note. `finish_disposal` does the rest."""
    note = {
        "workspace": {"id": entry.id, "name": entry.name},
        "why": entry.why,
        "unpushed": list(entry.unpushed),
    }
    try:
        entry.place.mkdir(mode=0o700)
        staged = home.staging(namespace).with_name(f"{entry.place.name}.note")
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(note, file, indent=1)
            file.flush()
            os.fsync(descriptor)
        staged.rename(entry.place / NOTE)
    except OSError as error:
        raise as_failure(error, str(entry.place)) from error


def finish_disposal(home: Home, namespace: Namespace, place: Path) -> None:
    """Move all files that are still in place to the trash. The call may be repeated."""
    try:
        for source, name in _remains(home, namespace):
            source.rename(place / name)
    except OSError as error:
        raise as_failure(error, str(place)) from error


def is_in_trash(home: Home, namespace: Namespace) -> bool:
    """Return True if neither the tree nor the history is still in its place."""
    return not _remains(home, namespace)


def unfinished_disposals(home: Home, namespace: Namespace) -> Path | None:
    """Return the trash directory of an interrupted disposal, or None.

    It has a note but does not hold any of the files that are still in place.
    """
    remains = _remains(home, namespace)
    for place in sorted(home.trash_root.glob(f"*-{namespace}"), reverse=True):
        if (place / NOTE).exists() and not any((place / name).exists() for _, name in remains):
            return place
    return None


def _remains(home: Home, namespace: Namespace) -> list[tuple[Path, str]]:
    """Return the directories that are still to be moved, with their names in the trash."""
    both = ((home.tree(namespace), FILES), (home.history(namespace), HISTORY))
    return [(source, name) for source, name in both if source.exists()]


def trash_entries(home: Home) -> Iterator[TrashEntry]:
    """Yield the directories of the trash that have a note, oldest first."""
    for place in sorted(home.trash_root.iterdir()):
        note = _note(place / NOTE)
        if note is not None:
            yield TrashEntry(place, *note)


def _note(file: Path) -> tuple[str, str, Why, tuple[str, ...]] | None:
    """Return the content of a note. None for other files, because people may put any file there."""
    try:
        if file.stat().st_size > NOTE_BYTES_MAX:
            return None
        note = cast("dict[str, Any]", json.loads(file.read_text()))
        workspace = note["workspace"]
        unpushed = tuple(str(path) for path in note["unpushed"])
        return str(workspace["id"]), str(workspace["name"]), note["why"], unpushed
    except (OSError, ValueError, LookupError, TypeError):
        return None
