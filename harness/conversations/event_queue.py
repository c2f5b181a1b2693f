"""The inbox: the events of a conversation wait in its line until they are turns, and each is done once.

What is written together, all but the first under the lease's guard:

    accept    claim · event · tail · the job that looks after the conversation · the lease, when it is free
    begin     head, with `running` · the turn's first entry
    open      what `accept` and `begin` write, in one batch, when nothing is before the event and somebody
              has prepared its turn already
    finish    the outcome into the claim · head, running nothing · the event away · the job, when it was
              the last one · the lease is let go of, when its holder has nothing more to do here
    pause     the turn waits for a person or a client: into the claim that it waits · head, `paused` and
              running nothing · the job, when it was the last one
    answer    an entry with what was allowed or answered · head, past the answer and still `paused`, or
              `running` again when it was the last that the turn waited for · the answer's claim leads to
              the claim of the turn's event · that one says what it waits for now, or nothing · the
              answer away
    abandon   something else was said, or the turn was cancelled: an entry with results that say so · the
              outcome into the claim · head, paused nothing · the event away

So at every moment an event is in exactly one state, whoever dies: it was not accepted, and may be sent
again; it waits, and the next holder takes it; it is `running`, its model may have been asked, and the next
holder goes on where the turn stopped; it is `paused`, nothing of what it waits for was run, and it stays
so until an event comes; or its outcome stands in its claim. What fails before `begin` or `answer` gives
the event back: its claim says why, and may be made again.

A paused turn needs nobody to look after it, and stands before nothing: the next event either answers it or
ends it. The outcome of a turn is kept once, with the event that began it, so that all who have a part
in it are told the same in the same instant.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from harness.conversations.conversation import INSTRUCT, Conversation, Conversations, New, claim_key
from harness.conversations.queue_state import (
    NOBODY_YET,
    NextEvent,
    PausedTurn,
    QueueHead,
    QueuePosition,
    QueueState,
    QueueUsage,
    RunningTurn,
    is_idle,
    is_large,
)
from harness.jobs.job import Job, Jobs, wish_key
from harness.messages.event import Event, body_hash_of
from harness.transcripts.outcome import Ending
from harness.transcripts.session import Session
from workspaces.accounts.account import Principal
from workspaces.clock import Clock
from workspaces.coordination.claim import Claim, Claims
from workspaces.coordination.lease import Bid, Lease, Leases
from workspaces.errors import Busy, Conflict, Failure, Forbidden, LeaseLost, NotFound, Unavailable
from workspaces.ids import AgentId, TurnId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import (
    Check,
    Condition,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordChange,
    RecordStore,
)

TURN = "turn"
"""The kind of job that looks after a conversation with unfinished events."""

LOOK_AFTER_S = 5.0
"""By then whoever accepted an event has usually answered it; if not, somebody looks."""

LET_GO_TRIES = 50
"""Whoever has just heard the end of a turn is not rejected because of it: a lease that is held over an idle
line is let go of a moment later, as a rule."""

MET_MAX = 1_000
"""Conversations that are remembered: those of a busy day."""

TRIES_MAX = 200
PAUSE_S_MAX = 0.02


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event that will be answered, or was."""

    conversation: Conversation
    claim: Key
    number: int
    lease: Lease | None = None
    """Of the conversation, when it was free."""
    first: NextEvent | None = None
    """The event itself, where it is what the holder of that lease has to do: nobody need look for it."""
    is_new: bool = False
    """Put in line just now, not by an earlier delivery of the same event, which may still wait."""


@dataclass(frozen=True, slots=True)
class Opening:
    """An event that nothing is before. Its turn may begin in the batch that accepts it; until then nothing
    of it is written."""

    conversation: Conversation
    made: tuple[RecordChange, ...]
    """That it is there; or what makes it, when it is new."""
    session: Session | None
    """Of a new one: nothing was said in it yet."""
    event: Event
    stated: JsonObject
    body: str
    """Its hash."""
    claim: Key
    expect: Condition
    bid: Bid
    head: QueueHead
    tail: Item | None

    @property
    def number(self) -> int:
        """Its place in line, when it comes to that."""
        return self.tail.value["next"] if self.tail else 1

    def accepted(self, lease: Lease) -> QueuedEvent:
        return QueuedEvent(self.conversation, self.claim, self.number, lease, is_new=True)


class EventQueue:
    def __init__(
        self,
        principal: Principal,
        records: RecordStore,
        large: BlobStore,
        clock: Clock,
        *,
        conversations: Conversations,
        claims: Claims,
        leases: Leases,
        jobs: Jobs,
    ) -> None:
        self._principal = principal
        self._records = records
        self._large = large
        self._clock = clock
        self._conversations = conversations
        self._claims = claims
        self._leases = leases
        self._jobs = jobs
        self._met: dict[tuple[AgentId, str], Conversation] = {}
        """Those in which something was accepted here, by agent and key. One that was deleted since is found
        out by the batch that would put something into it."""

    def accept(self, agent_id: AgentId, event: Event, *, rejects: bool) -> QueuedEvent:
        """Durably in line, once; the same event again leads to the same place.

        Conflict for an id that was used with another body; TooMany when the line is full; Busy for a
        conversation in use, when the agent `rejects` what comes then; NotFound for another user's.
        """
        self._check_may_say(event)
        stated = event.as_json()
        claim, body = self.claim_key(agent_id, event.id), body_hash_of(stated)
        conversation: Conversation | None = None
        for number in _tries():
            standing = self._claims.look(claim, body)
            if isinstance(standing, Claim):
                return self._again(standing)
            if conversation is None:
                conversation = self._conversation(agent_id, event)
            try:
                return self._added(
                    conversation, event, stated, body, claim, standing, rejects=rejects
                )
            except Busy:
                if self._is_in_use(conversation) or number >= LET_GO_TRIES:
                    raise
            except Conflict as conflict:
                is_gone = conflict.name == str(conversation.exists.key)
                if is_gone:  # deleted, in this instant or before
                    self._met.pop((agent_id, event.conversation_key), None)
                    conversation = None
        raise Busy("the conversation", holder="very many at once")

    def opening(self, agent_id: AgentId, event: Event) -> Opening | None:
        """For whoever is ready to begin its turn, where nothing is before it. None when it has been here
        before, answers something, is large, or is not alone: then it is to be accepted. Nothing is written
        yet. What is prepared for it is good for nothing when somebody else is faster."""
        if event.is_answer:
            return None
        self._check_may_say(event)
        stated = event.as_json()
        if is_large(stated):
            return None
        claim, body = self.claim_key(agent_id, event.id), body_hash_of(stated)
        expect = self._claims.look(claim, body)
        if isinstance(expect, Claim):
            return None
        found = self._conversations.found_or_new(agent_id, event.conversation_key)
        if isinstance(found, New):
            conversation, made, session = found.conversation, found.changes, found.session
            head, tail = NOBODY_YET, None
        else:
            conversation, made, session = found, (found.exists,), None
            head, tail = self._line(conversation).ends()
        bid = self._bid(conversation, rejects=False) if is_idle(head, tail) else None
        if bid is None or head.paused is not None:
            return None
        of = (conversation, made, session)
        return Opening(*of, event, stated, body, claim, expect, bid, head, tail)

    def opened(
        self, opening: Opening, turn_id: TurnId, first: int, *, uses_caller_model: bool = False
    ) -> tuple[RunningTurn, tuple[RecordChange, ...]]:
        """The turn that begins, and what must be written with its first entry by the opening's bid."""
        conversation, line = opening.conversation, self._line(opening.conversation)
        claim, expect = opening.claim, opening.expect
        about = _about(conversation, opening.number)
        claimed = self._claims.made(claim, opening.body, about, expect)
        joined, ends = line.joined(opening.event, opening.stated, opening.tail)
        running = RunningTurn(
            opening.number, opening.event, turn_id, first, 1, opening.head, uses_caller_model
        )
        begun = QueueHead(opening.head.counter, opening.number + 1, ends, running.as_json())
        job = self._jobs.wanted_anew(self._looking_after(conversation))
        return running, (*opening.made, claimed, *joined, line.moved(begun), *job)

    def refuse(self, opening: Opening, why: Failure) -> None:
        """Nothing has happened: the event may be sent again. Conflict when it was, meanwhile."""
        about = _about(opening.conversation, 0)
        claim, body, expect = opening.claim, opening.body, opening.expect
        refused = self._claims.refused(claim, body, about, expect, _told(why))
        self._records.write(*opening.made, refused)

    def lost(self, opening: Opening) -> None:
        """Somebody was faster: what was put beside the records for a new conversation is nobody's."""
        if opening.session is not None:
            self._conversations.transcript(opening.conversation).erase()

    def claim_key(self, agent_id: AgentId, event_id: str) -> Key:
        return claim_key(self._principal.account_id, self._principal.user_id, agent_id, event_id)

    def claim(self, key: Key) -> Claim | None:
        return self._claims.find(key)

    def ahead(self, accepted: QueuedEvent) -> int:
        """How many events come before this one."""
        return self.position_of(accepted.conversation, accepted.number).ahead

    def _is_in_use(self, conversation: Conversation) -> bool:
        """Something runs, or waits in line."""
        return not is_idle(*self._line(conversation).ends())

    def state(self, conversation: Conversation) -> QueueUsage:
        return self._line(conversation).usage()

    def position_of(self, conversation: Conversation, number: int) -> QueuePosition:
        return self._line(conversation).position_of(number)

    def next(self, conversation: Conversation, lease: Lease) -> RunningTurn | NextEvent | None:
        """What the holder of the lease has to do: go on with what runs, begin what waits, or nothing."""
        line = self._line(conversation)
        head, tail = line.ends()
        if head.running is not None:
            return line.running(head)
        end = tail.value["next"] if tail else 1
        first = line.first(head, end)
        if first is None and tail is not None and head.next < end:  # all were withdrawn
            moved = replace(head, next=end, bytes=tail.value["bytes"])
            self._guarded(lease, line.moved(moved))
        return first

    def beginning(
        self,
        conversation: Conversation,
        waiting: NextEvent,
        turn_id: TurnId,
        first: int,
        *,
        uses_caller_model: bool = False,
    ) -> tuple[RunningTurn, tuple[RecordChange, ...]]:
        """The turn that begins, and what must be written with its first entry."""
        ends = waiting.item.value["ends"]
        running = RunningTurn(
            waiting.number, waiting.event, turn_id, first, 1, waiting.head, uses_caller_model
        )
        head = QueueHead(waiting.head.counter, waiting.number + 1, ends, running.as_json())
        still_there = Check(waiting.item.key, waiting.item.counter)
        return running, (still_there, self._line(conversation).moved(head))

    def resume(self, conversation: Conversation, running: RunningTurn, lease: Lease) -> RunningTurn:
        """Another attempt at a turn that was interrupted, counted before it is made."""
        again = replace(running, attempt=running.attempt + 1)
        head = replace(running.head, running=again.as_json())
        self._guarded(lease, self._line(conversation).moved(head))
        return again

    def finish(
        self,
        conversation: Conversation,
        running: RunningTurn,
        ending: Ending,
        lease: Lease,
        *,
        is_last: bool = False,
    ) -> None:
        """`is_last`: whoever holds the lease wants to let go of it, whatever waits. Where nothing waits it
        is let go of in any case."""
        claim = self._claims.find(conversation.claim_key(running.event.id))
        outcome = () if claim is None else (self._claims.finished(claim, ending.as_json()),)
        self._settle(conversation, running.number, None, outcome, lease, is_last=is_last)

    def paused(
        self, conversation: Conversation, head: QueueHead | None = None
    ) -> PausedTurn | None:
        """The turn that waits for an answer, if one does."""
        line = self._line(conversation)
        return line.paused(head or line.head())

    def pause(
        self,
        conversation: Conversation,
        running: RunningTurn,
        ending: Ending,
        lease: Lease,
        *,
        is_last: bool = False,
    ) -> None:
        """The turn rests. `is_last` as in `finish`."""
        claim = self._claims.find(conversation.claim_key(running.event.id))
        told = () if claim is None else (self._claims.resting(claim, ending.as_json()),)
        head = self._line(conversation).head()
        paused = {"number": running.number, "turn": running.turn_id, "first": running.first}
        rests = replace(head, running=None, paused=paused)
        self._settle(conversation, None, rests, told, lease, is_last=is_last)

    def answering(
        self,
        conversation: Conversation,
        waiting: NextEvent,
        paused: PausedTurn,
        rest: Ending | None,
    ) -> tuple[RunningTurn | None, tuple[RecordChange, ...]]:
        """What must be written with the entry of an answer. `rest`: how the turn still waits; None when
        this was the last that it waited for, and it runs again."""
        ends = waiting.item.value["ends"]
        head = replace(waiting.head, next=waiting.number + 1, bytes=ends)
        running = None
        if rest is None:
            running = RunningTurn(
                paused.number, paused.event, paused.turn_id, paused.first, 1, head
            )
            head = replace(head, running=running.as_json(), paused=None)
        return running, (
            Delete(waiting.item.key, expect=waiting.item.counter),
            self._line(conversation).moved(head),
            *self._led(conversation, waiting.event, paused.event),
            *self._standing(conversation, paused.event, rest),
        )

    def abandoning(
        self, conversation: Conversation, paused: PausedTurn, ending: Ending
    ) -> tuple[RecordChange, ...]:
        """What must be written with the entry that says that nobody waits any more."""
        claim = self._claims.find(conversation.claim_key(paused.event.id))
        outcome = () if claim is None else (self._claims.finished(claim, ending.as_json()),)
        head = replace(self._line(conversation).head(), paused=None)
        return (
            Delete(paused.item.key),
            self._line(conversation).moved(head),
            *outcome,
        )

    def cancel(self, conversation: Conversation) -> TurnId | None:
        """Whoever runs a turn there is to end it; None when none runs."""
        line = self._line(conversation)
        running = line.head().running
        if running is None:
            return None
        turn_id = TurnId(running["turn"])
        self._records.write(line.ending(turn_id))
        return turn_id

    def is_cancelled(self, conversation: Conversation, turn_id: TurnId) -> bool:
        return self._line(conversation).is_to_end(turn_id)

    def began(self, conversation: Conversation, claim: Claim) -> Claim:
        """Of the event that began the turn which this event began or answered: there stands what came of
        it, or that it waits. NotFound when that was too long ago."""
        if claim.outcome is None or "of" not in claim.outcome:
            return claim
        began = self._claims.find(conversation.claim_key(claim.outcome["of"]))
        if began is None:
            raise NotFound("event", claim.outcome["of"])
        return began

    def forget(self, conversation: Conversation, gone: NextEvent | PausedTurn) -> None:
        """What lies beside the records of an event that is not in the line any more."""
        self._line(conversation).forget(gone.item.value["event"])

    def give_back(
        self, conversation: Conversation, waiting: NextEvent, why: Failure, lease: Lease
    ) -> None:
        """Nothing has happened yet: the event may be sent again."""
        claim = self._claims.find(conversation.claim_key(waiting.event.id))
        refusal = () if claim is None else (self._claims.released(claim, _told(why)),)
        head = replace(waiting.head, next=waiting.number + 1, bytes=waiting.item.value["ends"])
        self._settle(conversation, waiting.number, head, refusal, lease)

    def withdraw(self, accepted: QueuedEvent) -> bool:
        """Take back an event that nobody has begun. False when it was."""
        line = self._line(accepted.conversation)
        item = line.item(accepted.number)
        claim = self._claims.find(accepted.claim)
        if item is None or claim is None or claim.outcome is not None or claim.refusal is not None:
            return False
        head = line.head()
        if head.next > accepted.number:
            return False
        told = {"code": "withdrawn", "message": "it was withdrawn", "remedy": None}
        try:
            self._records.write(
                line.unmoved(head),
                Delete(item.key, expect=item.counter),
                self._claims.released(claim, told),
            )
        except Conflict:
            return self.withdraw(accepted)
        line.forget(item.value["event"])
        return True

    def _check_may_say(self, event: Event) -> None:
        is_instructed = event.system_kept or event.system_once is not None
        if is_instructed and not self._principal.may_configure:
            raise Forbidden(INSTRUCT)

    def _conversation(self, agent_id: AgentId, event: Event) -> Conversation:
        """An answer begins no conversation. NotFound."""
        name = (agent_id, event.conversation_key)
        found = self._met.get(name)
        if found is None and event.is_answer:
            found = self._conversations.find(*name)
        elif found is None:
            found = self._conversations.open(*name)
        if found is None:
            raise NotFound("conversation", event.conversation_key)
        if len(self._met) >= MET_MAX:
            self._met.clear()
        self._met[name] = found
        return found

    def _led(self, conversation: Conversation, answer: Event, to: Event) -> tuple[Put, ...]:
        claim = self._claims.find(conversation.claim_key(answer.id))
        return () if claim is None else (self._claims.finished(claim, {"of": to.id}),)

    def _standing(
        self, conversation: Conversation, event: Event, rest: Ending | None
    ) -> tuple[Put, ...]:
        claim = self._claims.find(conversation.claim_key(event.id))
        if claim is None:
            return ()
        if rest is None:
            return (self._claims.resumed(claim),)
        return (self._claims.resting(claim, rest.as_json()),)

    def _again(self, claim: Claim) -> QueuedEvent:
        conversation = self._conversations.get(claim.about["conversation"])
        return QueuedEvent(conversation, claim.key, claim.about["number"])

    def _added(
        self,
        conversation: Conversation,
        event: Event,
        stated: JsonObject,
        body: str,
        claim: Key,
        expect: Condition,
        *,
        rejects: bool,
    ) -> QueuedEvent:
        line = self._line(conversation)
        head, tail = line.ends()
        is_alone = is_idle(head, tail)
        number: int = tail.value["next"] if tail else 1
        line.check_room(head, tail, event.size_bytes)
        bid = self._bid(conversation, rejects=rejects)
        claimed = self._claims.made(claim, body, _about(conversation, number), expect)
        kept = line.kept(stated)
        (put, moved), _ = line.joined(event, kept, tail)
        bids, job = bid.changes if bid else (), self._job(conversation, is_alone=is_alone)
        try:
            counters = self._records.write(*bids, conversation.exists, claimed, put, moved, *job)
        except Conflict:
            line.forget(kept)
            raise
        except Unavailable:
            if bid is not None:
                self._leases.lose(bid)
            raise
        if bid is None:
            return QueuedEvent(conversation, claim, number, is_new=True)
        first = None
        if is_alone:  # a head that was moved since makes the batch that begins it conflict
            _, _, counter, *_ = counters
            first = NextEvent(number, event, Item(put.key, put.value, counter), head)
        return QueuedEvent(conversation, claim, number, bid.won(counters), first, is_new=True)

    def _job(self, conversation: Conversation, *, is_alone: bool) -> tuple[RecordChange, ...]:
        """That looks after an event. Where none is before it nobody can want that earlier."""
        job = self._looking_after(conversation)
        if is_alone:
            return self._jobs.wanted_anew(job)
        return self._jobs.wanted(job, at_the_latest=True)

    def _bid(self, conversation: Conversation, *, rejects: bool) -> Bid | None:
        try:
            return self._leases.bid(conversation.lease_key)
        except Busy:
            if rejects:
                raise
            return None

    def _looking_after(self, conversation: Conversation) -> Job:
        payload = {
            "accountId": conversation.account_id,
            "userId": conversation.user_id,
            "conversationId": conversation.id,
        }
        due = self._clock.now() + timedelta(seconds=LOOK_AFTER_S)
        return Job(_job_id(conversation), TURN, due, payload)

    def _settle(
        self,
        conversation: Conversation,
        number: int | None,
        head: QueueHead | None,
        ending: tuple[Put, ...],
        lease: Lease,
        *,
        is_last: bool = False,
    ) -> None:
        """The event, if it is one, is done with, and so are job and lease when no other event waits."""
        line = self._line(conversation)
        item = None if number is None else line.item(number)
        head = head or replace(line.head(), running=None)
        gone = (Delete(item.key),) if item else ()
        for job in (self._job_when_empty(conversation, head), ()):
            lets_go = is_last or bool(job)
            guard = self._leases.releasing(lease) if lets_go else lease.guard
            try:
                self._records.write(guard, *ending, line.moved(head), *gone, *job)
            except Conflict as conflict:
                if job and conflict.name == str(wish_key(_job_id(conversation))):
                    continue  # somebody has just added an event: the job stays
                raise LeaseLost(lease.key) from conflict
            if lets_go:
                self._leases.let_go(lease)
            break
        if item is not None:
            line.forget(item.value["event"])

    def _job_when_empty(
        self, conversation: Conversation, head: QueueHead
    ) -> tuple[RecordChange, ...]:
        """The job is read before the tail: whoever adds an event writes both, so that what is added
        after this look makes the end of the job conflict."""
        changes = self._jobs.unwanted(_job_id(conversation))
        _, tail = self._line(conversation).ends()
        return changes if tail is None or tail.value["next"] == head.next else ()

    def _line(self, conversation: Conversation) -> QueueState:
        return QueueState(conversation.id, self._records, self._large)

    def _guarded(self, lease: Lease, *changes: RecordChange) -> None:
        try:
            self._records.write(lease.guard, *changes)
        except Conflict as conflict:
            if lease.is_lost_by(conflict):
                raise LeaseLost(lease.key) from conflict
            raise


def _tries() -> Iterator[int]:
    """Others were faster: again, after a random moment, so that not all come at the same one."""
    for number in range(TRIES_MAX):
        yield number
        time.sleep(random.uniform(0, PAUSE_S_MAX))  # noqa: S311 - not secret


def _about(conversation: Conversation, number: int) -> JsonObject:
    """What a claim is about: the place in line; 0 for what never stood there."""
    return {"conversation": conversation.id, "number": number}


def _told(why: Failure) -> JsonObject:
    return {"code": why.code, "message": str(why), "remedy": why.remedy}


def _job_id(conversation: Conversation) -> str:
    return f"{TURN}:{conversation.id}"
