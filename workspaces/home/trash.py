"""The trash of a home: where the files and the history of a workspace lie when it is over, until somebody
empties it.

A directory for each, with a note of what it was and why it lies here. The note is there first: from then on
whoever finds the tree still in its place knows what to do, and an interrupted burial is gone on with.
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
"""Ten thousand long paths; a larger one is not one of ours."""

Why = Literal["here", "elsewhere", "over"]
"""Deleted by somebody here; by somebody on another machine; or over, and another life began."""


@dataclass(frozen=True, slots=True)
class TrashEntry:
    place: Path
    id: str
    name: str
    why: Why
    unpushed: tuple[str, ...] = ()
    """What was changed here and never reached the other machines: of nobody else's deletion."""

    @property
    def files(self) -> Path:
        return self.place / FILES


def begin_disposal(home: Home, namespace: Namespace, buried: TrashEntry) -> None:
    """The note only. `finish_disposal` does the rest."""
    note = {
        "workspace": {"id": buried.id, "name": buried.name},
        "why": buried.why,
        "unpushed": list(buried.unpushed),
    }
    try:
        buried.place.mkdir(mode=0o700)
        beside = home.staging(namespace).with_name(f"{buried.place.name}.note")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(note, file, indent=1)
            file.flush()
            os.fsync(descriptor)
        beside.rename(buried.place / NOTE)
    except OSError as error:
        raise as_failure(error, str(buried.place)) from error


def finish_disposal(home: Home, namespace: Namespace, place: Path) -> None:
    """What is still where it was goes there. May be repeated."""
    try:
        for source, name in _remains(home, namespace):
            source.rename(place / name)
    except OSError as error:
        raise as_failure(error, str(place)) from error


def is_in_trash(home: Home, namespace: Namespace) -> bool:
    """Whether nothing is where it was."""
    return not _remains(home, namespace)


def unfinished_disposals(home: Home, namespace: Namespace) -> Path | None:
    """Where a burial of what is still here was begun: there is room for it beside its note."""
    remains = _remains(home, namespace)
    for place in sorted(home.trash_root.glob(f"*-{namespace}"), reverse=True):
        if (place / NOTE).exists() and not any((place / name).exists() for _, name in remains):
            return place
    return None


def _remains(home: Home, namespace: Namespace) -> list[tuple[Path, str]]:
    """What there is to move, and what it is called in the trash."""
    both = ((home.tree(namespace), FILES), (home.history(namespace), HISTORY))
    return [(source, name) for source, name in both if source.exists()]


def lying(home: Home) -> Iterator[TrashEntry]:
    """Everything with a note, oldest first."""
    for place in sorted(home.trash_root.iterdir()):
        note = _note(place / NOTE)
        if note is not None:
            yield TrashEntry(place, *note)


def _note(file: Path) -> tuple[str, str, Why, tuple[str, ...]] | None:
    """None for what is no note of ours: people may put there what they like."""
    try:
        if file.stat().st_size > NOTE_BYTES_MAX:
            return None
        note = cast("dict[str, Any]", json.loads(file.read_text()))
        workspace = note["workspace"]
        unpushed = tuple(str(path) for path in note["unpushed"])
        return str(workspace["id"]), str(workspace["name"]), note["why"], unpushed
    except (OSError, ValueError, LookupError, TypeError):
        return None
