"""Store values that are too large for a record in the blob store; the record then holds their name.

    <conversation>/<name>.json    a value as it would have stood in its record

A value is written before its record. So a name is never used twice: it contains the writer, or is random. A
process that has lost the lease therefore replaces nothing, and no reader sees a value without a record.

Every record that may grow too large is stored through this module. Full results of tools (`StoredResults`)
and snapshots of archives lie beside these values and are no part of a record: they are read on their own.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

from workspaces.conditions import ANY
from workspaces.errors import Busy
from workspaces.ids import ConversationId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import JsonObject, Put, fits, json_of


class LargeValues:
    """The large values of one conversation."""

    def __init__(self, conversation_id: ConversationId, blobs: BlobStore) -> None:
        self._conversation_id = conversation_id
        self._blobs = blobs

    def fitting(self, put: Put, name: str) -> Put:
        """Return the change. A value that is too large goes to the blob store under this name."""
        text = json_of(put.key, put.value)
        if fits(text):
            return replace(put, text=text)
        return replace(put, value=self.keep(name, text))

    def keep(self, name: str, text: str) -> JsonObject:
        """Write the text to the blob store, and return the reference to put into the record."""
        whole = f"{self._conversation_id}/{name}.json"
        self._blobs.write(whole, text.encode(errors="replace"), expect=ANY)
        return {"large": whole}

    def value(self, kept: JsonObject) -> JsonObject:
        """Return the value of a record, read from the blob store if the record holds a reference."""
        return json.loads(self._blobs.read(kept["large"]).data) if "large" in kept else kept

    def forget(self, kept: JsonObject) -> None:
        """Delete the large value of a deleted record. If a backup runs, leave it for `erase`."""
        if "large" in kept:
            with suppress(Busy):
                self._blobs.delete(kept["large"], expect=ANY)

    def erase(self) -> None:
        """Delete all large values of the conversation.

        Raises: Busy while a backup of the home runs.
        """
        for stat in list(self._blobs.scan(f"{self._conversation_id}/")):
            self._blobs.delete(stat.name, expect=ANY)
