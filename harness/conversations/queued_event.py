"""Describe events in the queue, and the changes that take them out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent, QueueHead
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
