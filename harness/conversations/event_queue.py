"""Queue the events of a conversation until they become turns, and process each exactly once.

These are the batches; all but the first are under the lease's guard:

    accept    claim · event · tail · the job that looks after the conversation · the lease, if it is free
    begin     head, with `running` · the turn's first entry and its first request. For an event that has
              nothing before it, and whose caller waits, also the records of `accept` (`turn_start`)
    finish    the outcome into the claim · head, with nothing running · delete the event · delete the job,
              after the last event · release the lease, if its holder has nothing more to do here
    pause     the turn waits for a person or a client: the claim says so · head, with `paused` and nothing
              running · delete the job, after the last event
    answer    an entry with the approvals or answers · head, past the answer: still `paused`, or `running`
              again after the last answer that the turn waited for · the answer's claim points to the claim
              of the turn's event · that claim says what the turn still waits for, or nothing · delete the
              answer's event
    abandon   the user said something else, or the turn was cancelled: an entry with results that say so ·
              the outcome into the claim · head, with nothing paused · delete the event

So an event is in exactly one state at every moment, whichever process dies. Not accepted: it may be sent
again. Waiting: the next lease holder takes it. `running`: its model may have been asked, and the next lease
holder resumes the turn where it stopped. `paused`: none of the waiting calls was run, and it stays so until
an event comes. Or its outcome stands in its claim.

A failure before `begin` or `answer` gives the event back: its claim holds the reason, and may be made again.

A paused turn needs no job to look after it and blocks no event: the next event either answers it or ends it.
The outcome of a turn is stored once, with the event that began it. So all events that have a part in the turn
get the same outcome at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from harness.conversations.conversation import INSTRUCT, Conversation, Conversations, New, claim_key
from harness.conversations.incoming_event import IncomingEvent, NewMarking, nothing_forbidden
from harness.conversations.queue_state import (
    NextEvent,
    PausedTurn,
    QueueHead,
    RunningTurn,
    is_idle,
    is_large,
    moved_head,
)
from harness.conversations.queued_event import (
    AlsoWritten,
    QueuedEvent,
    QueuePlace,
    nothing_also,
)
from harness.conversations.turn_start import TurnStart
from harness.jobs.job import Job, wish_key
from harness.messages.event import SHARED_KEY, Event
from workspaces.coordination.claim import Claim, Claims
from workspaces.coordination.lease import Bid, Lease
from workspaces.errors import Busy, Conflict, Failure, Forbidden, LeaseLost, NotFound, Unavailable
from workspaces.ids import AgentId, TurnId
from workspaces.storage.contention import attempts, contended, until_written
from workspaces.storage.records import (
    Condition,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordChange,
)

if TYPE_CHECKING:
    from harness.transcripts.outcome import Ending

TURN = "turn"
"""Kind of the job that looks after a conversation with unfinished events."""

LOOK_AFTER_S = 5.0
"""Seconds until that job runs. By then the accepting process has usually finished the event."""

LET_GO_TRIES = 50
"""Attempts before a lease on an idle queue counts as in use. Usually such a lease is released a moment later.
So a caller that just saw the end of a turn is not rejected because of it."""

CACHED_MAX = 1_000
"""Conversations to cache: those of a busy day."""

TRIES_MAX = 200
PAUSE_S_MAX = 0.02


class EventQueue:
    def __init__(
        self, conversations: Conversations, marking: NewMarking = nothing_forbidden
    ) -> None:
        """`marking` returns what is applied to every text of an event before it is stored."""
        self.claims = Claims(conversations.records, conversations.clock)
        self._conversations = conversations
        self._marking = marking
        self._principal = conversations.principal
        self._records = conversations.records
        self._clock = conversations.clock
        self._leases = conversations.leases
        self._jobs = conversations.jobs
        self._cached: dict[tuple[AgentId, str], Conversation] = {}
        """Conversations that accepted an event here. If one was deleted, the next batch fails."""

    def accept(self, agent_id: AgentId, event: Event, *, rejects: bool) -> QueuedEvent:
        """Put the event into the queue durably, once. The same event again returns the same place.

        Raises: Conflict for an id that was used with another body; TooMany when the queue is full; Busy for a
        conversation in use, if the agent `rejects` events then; NotFound for another user's conversation;
        Forbidden when a user's key gives instructions.
        """
        self._check_may_say(event)
        incoming = IncomingEvent(event, self._marking)
        claim = self.claim_key(agent_id, event.id)
        conversation: Conversation | None = None
        for number in attempts(TRIES_MAX, pause_s_max=PAUSE_S_MAX):
            existing = self.claims.look(claim, incoming.has_body)
            if isinstance(existing, Claim):
                return self._earlier(existing)
            if conversation is None:
                conversation = self._conversation(agent_id, event)
            try:
                return self._add(conversation, incoming, claim, existing, rejects=rejects)
            except Busy:
                if self._conversations.is_in_use(conversation) or number >= LET_GO_TRIES:
                    raise
            except Conflict as conflict:
                is_gone = conflict.name == str(conversation.exists.key)
                if is_gone:  # the conversation was deleted, now or earlier
                    self._cached.pop((agent_id, event.conversation_key), None)
                    conversation = None
        raise contended("the conversation")

    def start(self, agent_id: AgentId, event: Event) -> TurnStart | None:
        """Return the start of the event's turn, for a caller that waits for the answer.

        Return None if the event must be accepted instead: it was delivered before, is an answer, is large,
        has an event or a turn before it, or is for the conversation that runs share. Nothing is written yet.
        """
        if event.is_answer or event.conversation_key == SHARED_KEY:
            return None
        self._check_may_say(event)
        incoming = IncomingEvent(event, self._marking)
        if is_large(incoming.json):
            return None
        claim = self.claim_key(agent_id, event.id)
        expect = self.claims.look(claim, incoming.has_body)
        if isinstance(expect, Claim):
            return None
        found = self._conversations.found_or_new(agent_id, event.conversation_key)
        conversation, session = (
            (found.conversation, found.session) if isinstance(found, New) else (found, None)
        )
        head, tail = self._conversations.queue(conversation).ends()
        bid = self._bid(conversation, rejects=False) if is_idle(head, tail) else None
        if bid is None or head.paused is not None:
            return None
        place = self._place(
            found, incoming, incoming.json, tail, claim=claim, expect=expect, is_alone=True
        )
        return TurnStart(
            conversation=conversation,
            event=incoming.event,
            number=place.number,
            head=head,
            ends=place.ends,
            right=bid,
            place=place,
            session=session,
        )

    def refuse(self, start: TurnStart, why: Failure) -> None:
        """Record that an event failed before it entered the queue, so that it may be sent again.

        Raises: Conflict when it was sent again in the meantime.
        """
        if isinstance(start.place, QueuePlace):
            about = _about(start.conversation, 0)
            refused = self.claims.refused(start.place.claim, about, _error_json(why))
            self._records.write(*start.place.exists, refused)

    def lost(self, start: TurnStart) -> None:
        """Delete the large values of a new conversation: another caller created it first."""
        if start.session is not None:
            self._conversations.transcript(start.conversation).erase()

    def claim_key(self, agent_id: AgentId, event_id: str) -> Key:
        return claim_key(self._principal.account_id, self._principal.user_id, agent_id, event_id)

    def ahead(self, accepted: QueuedEvent) -> int:
        """Return the number of events before this one."""
        return self._conversations.queue(accepted.conversation).head().ahead_of(accepted.number)

    def next(self, conversation: Conversation, lease: Lease) -> RunningTurn | NextEvent | None:
        """Return the lease holder's next work: a turn to resume, an event to begin, or None."""
        queue = self._conversations.queue(conversation)
        head, tail = queue.ends()
        if head.running is not None:
            return queue.running(head)
        end = tail.value["next"] if tail else 1
        first = queue.first(head, end)
        if first is None and tail is not None and head.next < end:  # all were withdrawn
            moved = replace(head, next=end, bytes=tail.value["bytes"])
            self._write_guarded(lease, moved_head(conversation.id, moved))
        return first

    def resume(self, conversation: Conversation, running: RunningTurn, lease: Lease) -> RunningTurn:
        """Count another attempt at an interrupted turn before it is made."""
        again = replace(running, attempt=running.attempt + 1)
        head = replace(running.head, running=again.as_json())
        self._write_guarded(lease, moved_head(conversation.id, head))
        return again

    def end(
        self,
        conversation: Conversation,
        running: RunningTurn,
        ending: Ending,
        lease: Lease,
        *,
        is_last: bool = False,
        also: AlsoWritten = nothing_also,
    ) -> None:
        """Write the ending with the changes of `also`. Remove the event, unless the turn waits for an answer.

        Release the lease if no event waits, or if `is_last`. After a conflict at a change of `also`, it is
        called again.
        """
        head = replace(self._conversations.queue(conversation).head(), running=None)
        number = None
        if ending.status == "waiting":
            paused = {"number": running.number, "turn": running.turn_id, "first": running.first}
            head = replace(head, paused=paused)
            outcome = self._claimed(
                conversation,
                running.event,
                lambda claim: self.claims.resting(claim, ending.as_json()),
            )
        else:
            number = running.number
            outcome = self._ended(conversation, running.event, ending)
        self._complete(
            conversation, lease, outcome, head, number=number, is_last=is_last, also=also
        )

    def answering(
        self,
        conversation: Conversation,
        waiting: NextEvent,
        paused: PausedTurn,
        rest: Ending | None,
    ) -> tuple[RunningTurn | None, tuple[RecordChange, ...]]:
        """Return the changes to write with the entry of an answer, and the turn if it runs again.

        `rest` is the ending of a turn that still waits; None if this was the last answer it waited for.
        """

        def pointing(claim: Claim) -> Put:
            return self.claims.finished(claim, {"of": paused.event.id})

        def going_on(claim: Claim) -> Put:
            if rest is None:
                return self.claims.resumed(claim)
            return self.claims.resting(claim, rest.as_json())

        head = _behind(waiting)
        running = None
        if rest is None:
            running = RunningTurn(
                paused.number, paused.event, paused.turn_id, paused.first, 1, head
            )
            head = replace(head, running=running.as_json(), paused=None)
        return running, (
            Delete(waiting.item.key, expect=waiting.item.counter),
            moved_head(conversation.id, head),
            *self._claimed(conversation, waiting.event, pointing),
            *self._claimed(conversation, paused.event, going_on),
        )

    def abandoning(
        self, conversation: Conversation, paused: PausedTurn, ending: Ending
    ) -> tuple[RecordChange, ...]:
        """Return the changes to write with the entry that ends a paused turn."""
        head = replace(self._conversations.queue(conversation).head(), paused=None)
        outcome = self._ended(conversation, paused.event, ending)
        return (Delete(paused.item.key), moved_head(conversation.id, head), *outcome)

    def cancel(self, conversation: Conversation, number: int | None = None) -> TurnId | None:
        """Ask the process that runs a turn here, with `number` only this event's, to end it. Return None
        if no such turn runs."""
        queue = self._conversations.queue(conversation)
        running = queue.head().running
        if running is None or number not in (None, running["number"]):
            return None
        turn_id = TurnId(running["turn"])
        self._records.write(queue.ending(turn_id))
        return turn_id

    def began(self, conversation: Conversation, claim: Claim) -> Claim:
        """Return the claim that holds the outcome of the turn that this claim's event began or answered.

        If the turn waits, that claim says so.

        Raises: NotFound when the event that began the turn was too long ago.
        """
        if claim.outcome is None or "of" not in claim.outcome:
            return claim
        began = self.claims.find(conversation.claim_key(claim.outcome["of"]))
        if began is None:
            raise NotFound("event", claim.outcome["of"])
        return began

    def give_back(
        self, conversation: Conversation, waiting: NextEvent, why: Failure, lease: Lease
    ) -> None:
        """Give the event back: nothing has happened yet, and it may be sent again."""
        refusal = self._claimed(
            conversation, waiting.event, lambda claim: self.claims.released(claim, _error_json(why))
        )
        self._complete(conversation, lease, refusal, _behind(waiting), number=waiting.number)

    def withdraw(self, accepted: QueuedEvent) -> bool:
        """Take back an event whose turn has not begun. Return False if it has."""
        queue = self._conversations.queue(accepted.conversation)
        item = queue.item(accepted.number)
        claim = self.claims.find(accepted.claim)
        if item is None or claim is None or claim.outcome is not None or claim.refusal is not None:
            return False
        head = queue.head()
        if head.next > accepted.number:
            return False
        error = {"code": "withdrawn", "message": "the event was withdrawn", "remedy": None}
        try:
            self._records.write(
                queue.unmoved(head),
                Delete(item.key, expect=item.counter),
                self.claims.released(claim, error),
            )
        except Conflict:
            return self.withdraw(accepted)
        queue.forget(item.value["event"])
        return True

    def _check_may_say(self, event: Event) -> None:
        is_instructed = event.system_kept or event.system_once is not None
        if is_instructed and not self._principal.may_configure:
            raise Forbidden(INSTRUCT)

    def _conversation(self, agent_id: AgentId, event: Event) -> Conversation:
        """Return the event's conversation; create it, unless the event is an answer.

        Raises: NotFound for an answer to an unknown conversation, and for another user's.
        """
        name = (agent_id, event.conversation_key)
        conversation = self._cached.get(name)
        if conversation is None and event.is_answer:
            conversation = self._conversations.find(*name)
        elif conversation is None:
            conversation = self._conversations.open(*name)
        if conversation is None:
            raise NotFound("conversation", event.conversation_key)
        if len(self._cached) >= CACHED_MAX:
            self._cached.clear()
        self._cached[name] = conversation
        return conversation

    def _claimed(
        self, conversation: Conversation, event: Event, change: Callable[[Claim], Put]
    ) -> tuple[Put, ...]:
        """Return the change of an event's claim; nothing if the claim has expired."""
        claim = self.claims.find(conversation.claim_key(event.id))
        return () if claim is None else (change(claim),)

    def _ended(self, conversation: Conversation, event: Event, ending: Ending) -> tuple[Put, ...]:
        return self._claimed(
            conversation, event, lambda claim: self.claims.finished(claim, ending.as_json())
        )

    def _earlier(self, claim: Claim) -> QueuedEvent:
        conversation = self._conversations.get(claim.about["conversation"])
        return QueuedEvent(conversation, claim.key, claim.about["number"])

    def _add(
        self,
        conversation: Conversation,
        incoming: IncomingEvent,
        claim: Key,
        expect: Condition,
        *,
        rejects: bool,
    ) -> QueuedEvent:
        queue = self._conversations.queue(conversation)
        head, tail = queue.ends()
        is_alone = is_idle(head, tail)
        queue.check_capacity(head, tail, incoming.event.size_bytes)
        bid = self._bid(conversation, rejects=rejects)
        stored_event = queue.store_event(incoming.json)
        place = self._place(
            conversation,
            incoming,
            stored_event,
            tail,
            claim=claim,
            expect=expect,
            is_alone=is_alone,
        )
        try:
            counters = self._records.write(*(bid.changes if bid else ()), *place.changes)
        except Conflict:
            queue.forget(stored_event)
            raise
        except Unavailable:
            if bid is not None:
                self._leases.lose(bid)
            raise
        if bid is None:
            return QueuedEvent(conversation, claim, place.number, is_new=True)
        first = None
        if is_alone:  # if the head has moved since, the batch that begins the turn conflicts
            _, _, counter, *_ = counters
            item = Item(place.event.key, place.event.value, counter)
            first = NextEvent(place.number, incoming.event, item, head)
        return QueuedEvent(conversation, claim, place.number, bid.won(counters), first, is_new=True)

    def _place(
        self,
        found: Conversation | New,
        incoming: IncomingEvent,
        stored_event: JsonObject,
        tail: Item | None,
        *,
        claim: Key,
        expect: Condition,
        is_alone: bool,
    ) -> QueuePlace:
        """Return the changes with which an event enters the queue."""
        is_new = isinstance(found, New)
        conversation = found.conversation if is_new else found
        item, moved = self._conversations.queue(conversation).joined(
            incoming.event, stored_event, tail
        )
        about = _about(conversation, moved.value["next"] - 1)
        return QueuePlace(
            exists=found.changes if is_new else (found.exists,),
            claim=self.claims.made(claim, incoming.body, about, expect),
            event=item,
            tail=moved,
            job=self._job(conversation, is_alone=is_alone),
        )

    def _job(self, conversation: Conversation, *, is_alone: bool) -> tuple[RecordChange, ...]:
        """Return the changes for the job that looks after an event."""
        job = self._job_of(conversation)
        if is_alone:  # no event is before this one, so no caller can want the job earlier
            return self._jobs.wanted_anew(job)
        return self._jobs.wanted(job, at_the_latest=True)

    def _bid(self, conversation: Conversation, *, rejects: bool) -> Bid | None:
        try:
            return self._leases.bid(conversation.lease_key)
        except Busy:
            if rejects:
                raise
            return None

    def _job_of(self, conversation: Conversation) -> Job:
        payload = {
            "accountId": conversation.account_id,
            "userId": conversation.user_id,
            "conversationId": conversation.id,
        }
        due = self._clock.now() + timedelta(seconds=LOOK_AFTER_S)
        return Job(_job_id(conversation), TURN, due, payload)

    @until_written("the conversation", TRIES_MAX, pause_s_max=PAUSE_S_MAX)
    def _complete(
        self,
        conversation: Conversation,
        lease: Lease,
        outcome: tuple[Put, ...],
        head: QueueHead,
        *,
        number: int | None,
        is_last: bool = False,
        also: AlsoWritten = nothing_also,
    ) -> None:
        """Move the head, and remove the event with this number, if any.

        If no other event waits, also remove the job and release the lease.
        """
        queue = self._conversations.queue(conversation)
        item = None if number is None else queue.item(number)
        gone = (Delete(item.key),) if item else ()
        job = self._job_when_empty(conversation, head)
        observed = also()
        lets_go = is_last or bool(job)
        guard = self._leases.releasing(lease) if lets_go else lease.guard
        try:
            moved = moved_head(conversation.id, head)
            self._records.write(guard, *outcome, moved, *gone, *job, *observed)
        except Conflict as conflict:
            # Another caller has just added an event, or what the observer read has changed.
            wish = wish_key(_job_id(conversation))
            if conflict.name in {str(wish), *(str(one.key) for one in observed)}:
                raise
            raise LeaseLost(lease.key) from conflict
        if lets_go:
            self._leases.let_go(lease)
        if item is not None:
            queue.forget(item.value["event"])

    def _job_when_empty(
        self, conversation: Conversation, head: QueueHead
    ) -> tuple[RecordChange, ...]:
        """Return the changes that delete the job, if the queue is empty."""
        # Read the job before the tail. A caller that adds an event writes both: an event added after this
        # read makes the deletion of the job conflict.
        changes = self._jobs.unwanted(_job_id(conversation))
        _, tail = self._conversations.queue(conversation).ends()
        return changes if tail is None or tail.value["next"] == head.next else ()

    def _write_guarded(self, lease: Lease, *changes: RecordChange) -> None:
        try:
            self._records.write(lease.guard, *changes)
        except Conflict as conflict:
            if lease.is_lost_by(conflict):
                raise LeaseLost(lease.key) from conflict
            raise


def _behind(waiting: NextEvent) -> QueueHead:
    """Return the head of the queue behind this event."""
    return replace(waiting.head, next=waiting.number + 1, bytes=waiting.item.value["ends"])


def _about(conversation: Conversation, number: int) -> JsonObject:
    """Return the subject of a claim: the place in the queue; 0 for an event that never had one."""
    return {"conversation": conversation.id, "number": number}


def _error_json(why: Failure) -> JsonObject:
    return {"code": why.code, "message": str(why), "remedy": why.remedy}


def _job_id(conversation: Conversation) -> str:
    return f"{TURN}:{conversation.id}"
