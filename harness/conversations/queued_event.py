"""Describe events in the queue, and the changes that put them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent
from workspaces.coordination.lease import Lease
from workspaces.storage.records import Key, Put, RecordChange


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
class QueuePlace:
    """The changes with which an event enters the queue. They are one batch, alone or with others."""

    exists: tuple[RecordChange, ...]
    """The check that the conversation exists; the changes that create it if it is new."""
    claim: Put
    event: Put
    tail: Put
    job: tuple[RecordChange, ...]

    @property
    def changes(self) -> tuple[RecordChange, ...]:
        return (*self.exists, self.claim, self.event, self.tail, *self.job)

    @property
    def number(self) -> int:
        """The event's number in the queue."""
        return self.tail.value["next"] - 1

    @property
    def ends(self) -> int:
        """Bytes of all events up to this one."""
        return self.tail.value["bytes"]


AlsoWritten = Callable[[], tuple[RecordChange, ...]]
"""A function that returns changes for the batch that ends a turn."""


def nothing_also() -> tuple[RecordChange, ...]:
    return ()
