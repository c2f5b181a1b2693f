"""Write the batch that makes a turn begin.

An event that has nothing before it, and whose caller waits, *enters* the queue in this batch. The batch makes
the claim, the place in the queue, the job that looks after it, and the conversation if it is new. It acquires
the lease. If another event comes first, the batch is refused as a whole, and the event goes into the queue.

An event that *waits* in the queue has all that. Its batch checks that the event is still there.

Both batches move the head of the queue, and hold the turn's first entry and its first request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.conversations.conversation import Conversation
from harness.conversations.queue_state import NextEvent, QueueHead, RunningTurn, moved_head
from harness.conversations.queued_event import QueuePlace
from harness.messages.event import Event
from harness.prompts.prompt_log import ReceiptDraft
from harness.prompts.turn_log import TurnLog
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry
from workspaces.coordination.lease import Bid, Lease
from workspaces.storage.records import Check, RecordChange


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The start of an event's turn. Nothing is written before `write`."""

    conversation: Conversation
    event: Event
    number: int
    """The event's place in the queue."""
    head: QueueHead
    ends: int
    """Bytes of all events up to this one."""
    right: Lease | Bid
    place: QueuePlace | Check
    """The changes with which the event enters the queue; or the check that it still waits there."""
    session: Session | None = None
    """The first session of a new conversation; it has no entries yet."""

    @property
    def withdrawn_key(self) -> str:
        """The key that a conflict names if the event was withdrawn from the queue."""
        return str(self.place.key) if isinstance(self.place, Check) else ""

    def write(
        self,
        log: TurnLog,
        entry: Entry,
        *,
        receipt: ReceiptDraft | None = None,
        also: Sequence[RecordChange] = (),
        uses_caller_model: bool = False,
    ) -> RunningTurn:
        """Write the batch, with the turn's first entry, its first request and the changes of `also`.

        Raises: LeaseLost or Conflict when another event or process came first. Then nothing was written.
        """
        running = RunningTurn(
            number=self.number,
            event=self.event,
            turn_id=entry.turn_id,
            first=entry.number,
            attempt=1,
            head=self.head,
            uses_caller_model=uses_caller_model,
        )
        begun = QueueHead(self.head.counter, self.number + 1, self.ends, running.as_json())
        moved = moved_head(self.conversation.id, begun)
        place = self.place.changes if isinstance(self.place, QueuePlace) else (self.place,)
        log.append(entry, receipt=receipt, also=(*place, moved, *also))
        log.first_request = receipt.prompt if receipt is not None else None
        return running


def start_of(conversation: Conversation, waiting: NextEvent, lease: Lease) -> TurnStart:
    """Return the start of the turn of an event that waits in the queue."""
    return TurnStart(
        conversation=conversation,
        event=waiting.event,
        number=waiting.number,
        head=waiting.head,
        ends=waiting.item.value["ends"],
        right=lease,
        place=Check(waiting.item.key, waiting.item.counter),
    )
