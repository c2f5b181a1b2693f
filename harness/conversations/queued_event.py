"""Describe events that enter the queue: those that are accepted, and those whose turn may begin at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent, QueueHead
from harness.messages.event import Event
from harness.transcripts.session import Session
from workspaces.coordination.lease import Bid, Lease
from workspaces.storage.records import Condition, Item, JsonObject, Key, Put, RecordChange


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event that is accepted: its outcome will come, or has come."""

    conversation: Conversation
    claim: Key
    number: int
    lease: Lease | None = None
    """The conversation's lease, if it was free."""
    first: NextEvent | None = None
    """The event, if it is first in the queue. Saves the lease holder a read."""
    is_new: bool = False
    """True if this delivery queued the event. False after an earlier one, which may still wait."""


@dataclass(frozen=True, slots=True)
class Opening:
    """An event that has nothing before it.

    Its turn may begin in the batch that accepts it; until then none of its records are written.
    """

    conversation: Conversation
    made: tuple[RecordChange, ...]
    """The check that the conversation exists; the changes that create it if it is new."""
    session: Session | None
    """The first session of a new conversation; it has no entries yet."""
    event: Event
    stated: JsonObject
    body: str
    """The hash of the event's body."""
    claim: Key
    expect: Condition
    bid: Bid
    head: QueueHead
    tail: Item | None

    @property
    def number(self) -> int:
        """The event's place in the queue, if it gets one."""
        return self.tail.value["next"] if self.tail else 1

    def accepted(self, lease: Lease) -> QueuedEvent:
        return QueuedEvent(self.conversation, self.claim, self.number, lease, is_new=True)


AlsoWritten = Callable[[], tuple[RecordChange, ...]]
"""A function that returns changes for the batch that ends a turn."""


def nothing_also() -> tuple[RecordChange, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A change of the queue at the end of a turn, or at its pause."""

    number: int | None
    """The event that leaves the queue."""
    head: QueueHead | None
    """The new head; None: as it is, with nothing running."""
    ending: tuple[Put, ...]
    """The changes of the claim."""
    also: AlsoWritten = nothing_also
