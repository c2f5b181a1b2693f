"""What a list says of each transcript, kept between processes.

An entry holds for one state of a file: its size and its time. The cache is one JSON file of the home. It can
be deleted at any moment, and a damaged one counts as empty. Of two processes that write it, the later wins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from pydantic_core import from_json

from harness.memorize.local.found_file import FoundFile
from harness.memorize.local.local_message import LocalConversation

FORMAT = 1


class ListCache:
    """The descriptions of files. Threads may share one: at worst a file is read twice."""

    def __init__(self, place: Path | None) -> None:
        """`place` is the file of the cache. None: it lives as long as the process."""
        self._place = place
        self._entries: dict[str, list[Any]] | None = None
        self._known: dict[str, tuple[FoundFile, LocalConversation]] = {}
        self._has_changed = False

    def get(self, key: str, file: FoundFile) -> LocalConversation | None:
        """Return the description under this key, if the file is as it was."""
        known = self._known.get(key)
        if known is not None and known[0] == file:
            return known[1]
        entry = self._read().get(key)
        if entry is None or len(entry) < 2 or entry[0] != file.size or entry[1] != file.mtime_ns:
            return None
        try:
            described = LocalConversation(*entry[2:])
        except TypeError:  # another version wrote it
            return None
        self._known[key] = file, described
        return described

    def put(self, key: str, file: FoundFile, one: LocalConversation) -> None:
        self._known[key] = file, one
        self._read()[key] = [
            file.size,
            file.mtime_ns,
            one.id,
            one.provider,
            one.title,
            one.project,
            one.updated_at,
            one.parent,
            one.is_archived,
            one.has_messages,
        ]
        self._has_changed = True

    def keep(self, keys: set[str]) -> None:
        """Forget all other keys, because their files are gone."""
        entries = self._read()
        if len(entries) > len(keys):
            for key in [one for one in entries if one not in keys]:
                del entries[key]
                self._known.pop(key, None)
                self._has_changed = True

    def write(self) -> None:
        """Write the cache if it has changed. A failure costs the next process some time."""
        if self._place is None or not self._has_changed:
            return
        text = json.dumps({"format": FORMAT, "files": self._read()}, separators=(",", ":"))
        temporary = self._place.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(text)
            temporary.replace(self._place)
            self._has_changed = False

    def _read(self) -> dict[str, list[Any]]:
        if self._entries is None:
            self._entries = {}
            if self._place is not None:
                with suppress(OSError, ValueError):
                    self._entries = _entries(from_json(self._place.read_bytes()))
        return self._entries


def _entries(told: object) -> dict[str, list[Any]]:
    """Return the entries of a cache; none if another version wrote it."""
    if not isinstance(told, dict):
        return {}
    fields = cast("Mapping[str, Any]", told)
    files = fields.get("files")
    if fields.get("format") != FORMAT or not isinstance(files, dict):
        return {}
    entries = cast("dict[str, Any]", files)
    return {key: one for key, one in entries.items() if isinstance(one, list)}
