"""Transcripts: everything that was said and done in a conversation, stored as it happens.

Entries are numbered without gaps and never changed. Each append is a new item under the next number,
guarded by the lease: two writers cannot both add entry 7, and a holder whose lease has passed on can
add nothing. An entry too large for the record store lies in the blob store, written before the item
that refers to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from harness.message import Message, message_of
from harness.tools.desk import Seen
from workspaces.blobs import BlobStore
from workspaces.errors import Conflict, LeaseLost
from workspaces.expect import ABSENT, ANY
from workspaces.ids import ConversationId, TurnId
from workspaces.lease import Lease
from workspaces.records import (
    VALUE_BYTES_MAX,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
    with_prefix,
)

_NUMBER_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    turn_id: TurnId
    message: Message
    seen: Seen
    """The versions of files that the conversation has come to know by this entry."""


NOTHING_SEEN: Seen = {}


class Transcript:
    """One conversation's entries. Only the holder of its lease may append."""

    def __init__(
        self, conversation_id: ConversationId, records: RecordStore, large: BlobStore
    ) -> None:
        self._partition = f"transcript:{conversation_id}"
        self._conversation_id = conversation_id
        self._records = records
        self._large = large

    def load(self) -> list[Entry]:
        return [self._entry(item) for item in with_prefix(self._records, self._partition, "")]

    def append(
        self,
        number: int,
        turn_id: TurnId,
        message: Message,
        lease: Lease,
        seen: Seen = NOTHING_SEEN,
    ) -> Entry:
        """Entry `number`, which must be the next. LeaseLost when the conversation is another's now."""
        value = {"turn": turn_id, "message": message.as_json(), **({"seen": seen} if seen else {})}
        put = Put(self._key(number), self._within_limit(number, value), expect=ABSENT)
        try:
            self._records.write(lease.guard, put)
        except Conflict as error:
            raise LeaseLost(lease.key) from error
        return Entry(number, turn_id, message, seen)

    def _within_limit(self, number: int, value: JsonObject) -> JsonObject:
        data = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        if len(data) <= VALUE_BYTES_MAX:
            return value
        name = f"{self._conversation_id}/{number:0{_NUMBER_DIGITS}}.json"
        self._large.write(name, data, expect=ANY)
        return {"large": name}

    def _entry(self, item: Item) -> Entry:
        value = item.value
        if "large" in value:
            value = json.loads(self._large.read(value["large"]).data)
        return Entry(
            int(item.key.sort),
            TurnId(value["turn"]),
            message_of(value["message"]),
            value.get("seen", NOTHING_SEEN),
        )

    def _key(self, number: int) -> Key:
        return Key(self._partition, f"{number:0{_NUMBER_DIGITS}}")
