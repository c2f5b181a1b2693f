"""What is too large for a record: it lies in the blob store, and the record says where.

    <conversation>/<name>.json    a value as it would have stood in its record

It is written before its record is. So a name is never given twice: it says who wrote, or is drawn. Whoever
has lost the lease replaces nothing by it, and what no record came to speak of is read by nobody.
"""

from __future__ import annotations

import json

from workspaces.conditions import ABSENT, ANY
from workspaces.ids import ConversationId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import JsonObject, Key, Put, fits, json_of


class LargeValues:
    """One conversation's."""

    def __init__(self, conversation_id: ConversationId, blobs: BlobStore) -> None:
        self._conversation_id = conversation_id
        self._blobs = blobs

    def put(self, key: Key, value: JsonObject, name: str) -> Put:
        """A new record; where its value is too large, that lies under this name."""
        text = json_of(key, value)
        if fits(text):
            return Put(key, value, expect=ABSENT, text=text)
        return Put(key, self.keep(name, text), expect=ABSENT)

    def keep(self, name: str, text: str) -> JsonObject:
        """What stands in the record instead."""
        whole = f"{self._conversation_id}/{name}.json"
        self._blobs.write(whole, text.encode(errors="replace"), expect=ANY)
        return {"large": whole}

    def value(self, kept: JsonObject) -> JsonObject:
        """Of what stands in a record, or where it lies."""
        return json.loads(self._blobs.read(kept["large"]).data) if "large" in kept else kept

    def forget(self, kept: JsonObject) -> None:
        """What lies aside of a record that is gone."""
        if "large" in kept:
            self._blobs.delete(kept["large"], expect=ANY)

    def erase(self) -> None:
        """All that lies here of the conversation."""
        for stat in list(self._blobs.scan(f"{self._conversation_id}/")):
            self._blobs.delete(stat.name, expect=ANY)
