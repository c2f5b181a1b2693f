"""The machines of an account, as they note themselves in the bucket, and what each has heard of.

    .records/<accountId>/machines/<machine>.json    {"format": 1, "heard": {<forgetting>: <stamp>}}

A machine notes itself when it joins, when it syncs and finds no note of itself, and whenever a forgetting is
done on it. So whoever forgets a text knows which machines have yet to hear. The notes are untrusted, as all
of the registry: one that is not valid is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from workspaces.conditions import ANY
from workspaces.errors import NotFound
from workspaces.remote.registry import MACHINES
from workspaces.storage.blobs import BlobStore
from workspaces.timestamp import Stamp

FORMAT = 1
MACHINES_MAX = 1_000
"""Machines whose notes are read."""

_ID = re.compile("machine_[0-9a-f]{24}")
_STAMP = re.compile(r"[0-9T:.-]{19,32}Z")


@dataclass(frozen=True, slots=True)
class MachineNote:
    machine: str
    heard: Mapping[str, Stamp]
    """When each forgetting was done there, by its id."""


@dataclass(frozen=True, slots=True)
class MachineNotes:
    """The notes of one account."""

    store: BlobStore

    def write(self, note: MachineNote) -> None:
        """Store the note of this machine.

        Raises: Unavailable if the bucket does not answer.
        """
        value = {"format": FORMAT, "heard": dict(note.heard)}
        data = json.dumps(value, indent=1, sort_keys=True).encode()
        self.store.write(f"{MACHINES}{note.machine}.json", data, expect=ANY)

    def all(self) -> list[MachineNote]:
        """Return the notes of all machines.

        Raises: Unavailable if the bucket does not answer.
        """
        names = [stat.name for stat in self.store.scan(MACHINES)]
        found = (self._one(name) for name in names[:MACHINES_MAX])
        return [note for note in found if note is not None]

    def _one(self, name: str) -> MachineNote | None:
        machine = name.removeprefix(MACHINES).removesuffix(".json")
        if not _ID.fullmatch(machine):
            return None
        with suppress(NotFound, ValueError, AttributeError, RecursionError):
            value = cast("dict[str, Any]", json.loads(self.store.read(name).data))
            heard = cast("dict[str, Any]", value.get("heard", {}))
            stamps = {str(one): Stamp(str(at)) for one, at in heard.items()}
            return MachineNote(machine, {k: v for k, v in stamps.items() if _STAMP.fullmatch(v)})
        return None
