"""Read and change the queue of one conversation: its waiting events and its running turn, as records.

    inbox:<conversation>   tail       {next, bytes}            moved by each caller that adds an event
                           head       {next, bytes, running, paused?}   moved by the lease holder alone
                           <number>   {event, bytes, ends}     stays until its turn has ended
                           cancel     {turn}                   written by a caller, polled by the lease holder

`tail` gives out each number once. `bytes` counts the bytes of all events that ever came, so that the bytes
that wait are the difference of the two. Callers that add events disturb only each other, and so do lease
holders that take them.

This module reads the queue and builds its changes; `event_queue` decides which changes form one batch.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace

from harness.conversations.event_status import EventStatus
from harness.messages.event import Event, event_of
from harness.transcripts.large_values import LargeValues
from workspaces.conditions import ABSENT
from workspaces.errors import NotFound, TooMany
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import (
    VALUE_BYTES_MAX,
    Check,
    Condition,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
)

WAITING_MAX = 100
WAITING_BYTES_MAX = 2**20
"""Bytes of the texts of waiting events, as UTF-8."""

_JSON = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class QueueHead:
    counter: Condition
    next: int
    bytes: int
    running: JsonObject | None
    paused: JsonObject | None = None

    @property
    def turn_id(self) -> TurnId | None:
        """Id of the running turn."""
        return TurnId(self.running["turn"]) if self.running else None

    def ahead_of(self, number: int) -> int:
        """Return the number of events before an unfinished one."""
        return max(0, number - self.next + (self.running is not None))

    def status_of(self, event: EventStatus, number: int) -> EventStatus:
        """Return the status of an unfinished event. The event `number` begins its turn."""
        if self.running is not None and self.running["number"] == number:
            turn_id, first = self.turn_id, self.running["first"]
            return replace(event, state="running", turn_id=turn_id, first=first)
        state = "running" if self.next > number else "queued"
        return replace(event, state=state, ahead=self.ahead_of(number))


EMPTY_HEAD = QueueHead(ABSENT, 1, 0, None)
"""Head of a queue that has no record yet."""


@dataclass(frozen=True, slots=True)
class NextEvent:
    """The first event in the queue, whose turn can begin."""

    number: int
    event: Event
    item: Item
    head: QueueHead


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that this process runs, or that another process left unfinished."""

    number: int
    event: Event
    turn_id: TurnId
    first: int
    """Number of the turn's first entry."""
    attempt: int
    head: QueueHead
    uses_caller_model: bool = False
    """True if the turn's model is the caller's own loop, so that no other process can resume it."""

    def as_json(self) -> JsonObject:
        return {
            "number": self.number,
            "turn": self.turn_id,
            "first": self.first,
            "attempt": self.attempt,
            **({"own": True} if self.uses_caller_model else {}),
        }


@dataclass(frozen=True, slots=True)
class PausedTurn:
    """A turn that waits for an answer."""

    number: int
    event: Event
    item: Item
    turn_id: TurnId
    first: int


class QueueState:
    def __init__(
        self, conversation_id: ConversationId, records: RecordStore, large: BlobStore
    ) -> None:
        self._conversation_id = conversation_id
        self._partition = queue_partition(conversation_id)
        self._records = records
        self._large_values = LargeValues(conversation_id, large)

    # reading

    def ends(self) -> tuple[QueueHead, Item | None]:
        """Return head and tail, with one read."""
        scan = self._records.scan(self._partition, start="head", end="tail\0")
        found = {item.key.sort: item for item in scan}
        tail, item = found.get("tail"), found.get("head")
        if item is None:
            return EMPTY_HEAD, tail
        value = item.value
        paused = value.get("paused")
        return QueueHead(
            item.counter, value["next"], value["bytes"], value["running"], paused
        ), tail

    def head(self) -> QueueHead:
        return self.ends()[0]

    def first(self, head: QueueHead, end: int) -> NextEvent | None:
        """Return the first waiting event before the number `end`, skipping withdrawn ones."""
        for number in range(head.next, end):
            item = self.item(number)
            if item is not None:
                return NextEvent(number, self.event(item), item, head)
        return None

    def running(self, head: QueueHead) -> RunningTurn | None:
        data = head.running
        if data is None:
            return None
        event = self.event(self._unfinished(data["number"]))
        turn_id, uses_caller_model = TurnId(data["turn"]), data.get("own", False)
        return RunningTurn(
            number=data["number"],
            event=event,
            turn_id=turn_id,
            first=data["first"],
            attempt=data["attempt"],
            head=head,
            uses_caller_model=uses_caller_model,
        )

    def paused(self, head: QueueHead | None = None) -> PausedTurn | None:
        """Return the turn that waits for an answer, if there is one. `head` is the head of the queue now."""
        data = (head or self.head()).paused
        if data is None:
            return None
        item = self._unfinished(data["number"])
        turn_id = TurnId(data["turn"])
        return PausedTurn(data["number"], self.event(item), item, turn_id, data["first"])

    def item(self, number: int) -> Item | None:
        return self._records.get(self._event_key(number))

    def event(self, item: Item) -> Event:
        return event_of(self._large_values.value(item.value["event"]))

    def is_to_end(self, turn_id: TurnId) -> bool:
        item = self._records.get(self._cancel_key)
        return item is not None and item.value["turn"] == turn_id

    def check_capacity(self, head: QueueHead, tail: Item | None, size: int) -> None:
        """Check that the queue has room for an event of this size.

        An event with nothing before it may be as large as events may be.

        Raises: TooMany when the queue is full.
        """
        if tail is None or is_idle(head, tail):
            return
        waiting_bytes = tail.value["bytes"] - head.bytes
        if _is_full(number_waiting(head, tail), waiting_bytes + size) is None:
            return
        start = self._event_key(head.next).sort
        waiting = self._records.scan(self._partition, start=start, end="tail")
        events = [item for item in waiting if "event" in item.value]  # not counting withdrawn ones
        full = _is_full(len(events), sum(item.value["bytes"] for item in events) + size)
        if full is not None:
            raise full

    # changes

    def unmoved(self, head: QueueHead) -> Check:
        return Check(_head_key(self._conversation_id), head.counter)

    def joined(self, event: Event, stored_event: JsonObject, tail: Item | None) -> tuple[Put, Put]:
        """Return the event's record behind the tail, and the tail behind that."""
        number: int = tail.value["next"] if tail else 1
        size = event.size_bytes
        ends: int = size + (tail.value["bytes"] if tail else 0)
        value = {"event": stored_event, "bytes": size, "ends": ends}
        item = Put(self._event_key(number), value, ABSENT)
        counter = tail.counter if tail else ABSENT
        moved = Put(Key(self._partition, "tail"), {"next": number + 1, "bytes": ends}, counter)
        return item, moved

    def ending(self, turn_id: TurnId) -> Put:
        """Return the record that asks the lease holder to end this turn."""
        return Put(self._cancel_key, {"turn": turn_id})

    # large values

    def store_event(self, event_json: JsonObject) -> JsonObject:
        """Return the event's JSON, or a reference to it if it is too large for a record."""
        if not is_large(event_json):
            return event_json
        name = f"event-{secrets.token_hex(8)}"
        return {"id": event_json["id"], **self._large_values.keep(name, _JSON.encode(event_json))}

    def forget(self, stored_event: JsonObject) -> None:
        """Delete the large values of an event that has left the queue, or was refused at its end."""
        self._large_values.forget(stored_event)

    def _unfinished(self, number: int) -> Item:
        """Return the event record of a turn that has not ended.

        Raises: NotFound when it is missing.
        """
        item = self.item(number)
        if item is None:
            raise NotFound("event", f"{number} of conversation {self._conversation_id}")
        return item

    @property
    def _cancel_key(self) -> Key:
        return Key(self._partition, "cancel")

    def _event_key(self, number: int) -> Key:
        return Key(self._partition, f"{number:012}")


def moved_head(conversation_id: ConversationId, head: QueueHead) -> Put:
    """Return the change that moves the head of a queue."""
    paused = {"paused": head.paused} if head.paused is not None else {}
    value = {"next": head.next, "bytes": head.bytes, "running": head.running, **paused}
    return Put(_head_key(conversation_id), value, head.counter)


def number_waiting(head: QueueHead, tail: Item | None) -> int:
    """Return the number of waiting events, including withdrawn ones."""
    return tail.value["next"] - head.next if tail else 0


def is_idle(head: QueueHead, tail: Item | None) -> bool:
    """Return True if no turn runs and no event is queued."""
    return head.running is None and number_waiting(head, tail) == 0


def queue_partition(conversation_id: ConversationId) -> str:
    return f"inbox:{conversation_id}"


def is_large(event_json: JsonObject) -> bool:
    """Return True if the event is too large for a record that has other fields too."""
    return len(_JSON.encode(event_json).encode()) > VALUE_BYTES_MAX // 2


def _head_key(conversation_id: ConversationId) -> Key:
    return Key(queue_partition(conversation_id), "head")


def _is_full(waiting: int, waiting_bytes: int) -> TooMany | None:
    """Return the error for a full queue, or None.

    `waiting_bytes` include those of the event that shall be added.
    """
    if waiting >= WAITING_MAX:
        kind = "events waiting in the conversation"
        return TooMany(kind, maximum=WAITING_MAX, actual=waiting + 1, unit="events")
    if waiting_bytes > WAITING_BYTES_MAX:
        kind = "texts waiting in the conversation"
        return TooMany(kind, maximum=WAITING_BYTES_MAX, actual=waiting_bytes, unit="bytes")
    return None
