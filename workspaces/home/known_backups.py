"""The backups that were made of this home: where, and when the newest was. A forgetting names them.

backups.json    {<place>: <stamp of the newest backup there>}
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from workspaces.home.layout import Home

_FILE = "locks/backups.json"
PLACES_MAX = 100


@dataclass(frozen=True, slots=True)
class KnownBackup:
    place: str
    at: str
    """The name of its snapshot."""


def known_backups(home: Home) -> list[KnownBackup]:
    """Return the newest backup of each place, the newest first."""
    with suppress(OSError, ValueError, AttributeError):
        stored = cast("dict[str, str]", json.loads((home.root / _FILE).read_text()))
        found = [KnownBackup(str(place), str(at)) for place, at in stored.items()]
        return sorted(found, key=lambda one: one.at, reverse=True)
    return []


def note_backup(home: Home, place: str, at: str) -> None:
    """Note a backup. A home that takes no file is backed up all the same."""
    places = {one.place: one.at for one in known_backups(home)} | {place: at}
    newest = sorted(places.items(), key=lambda one: one[1], reverse=True)[:PLACES_MAX]
    draft = home.root / f"{_FILE}.new"
    with suppress(OSError):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(dict(newest), file)
        draft.rename(home.root / _FILE)
