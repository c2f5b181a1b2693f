"""The inbox: the events of one conversation, waiting in line until they are turns, each done once.

    inbox:<conversation>   tail       {next, bytes}            moved by whoever adds an event
                           head       {next, bytes, running, paused?}   moved by the lease's holder alone
                           <number>   {event, bytes, ends}     stays until its turn has ended
                           cancel     {turn}                   wanted by anyone, looked for by its holder

Numbers are given out by `tail` and never again; `bytes` counts all that ever came, so that what waits is
the difference of the two, and adding and taking disturb nobody but their own kind.

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

import json
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from harness.conversation import (
    SAY_FOR_GOOD,
    Conversation,
    Conversations,
    claim_key,
    inbox_partition,
)
from harness.event import Event, body_hash_of, event_of
from harness.job import Job, Jobs, wish_key
from harness.outcome import Ending
from workspaces.account import Principal
from workspaces.blobs import BlobStore
from workspaces.claim import Claim, Claims
from workspaces.clock import Clock
from workspaces.errors import (
    Busy,
    Conflict,
    Failure,
    Forbidden,
    LeaseLost,
    NotFound,
    TooMany,
    Unavailable,
)
from workspaces.expect import ABSENT, ANY
from workspaces.ids import AgentId, TurnId
from workspaces.lease import Bid, Lease, Leases
from workspaces.records import (
    VALUE_BYTES_MAX,
    Change,
    Check,
    Condition,
    Delete,
    Item,
    JsonObject,
    Key,
    Put,
    RecordStore,
)

WAITING_MAX = 100
WAITING_BYTES_MAX = 2**20
"""Of the texts of waiting events, as UTF-8."""

TURN = "turn"
"""The kind of job that looks after a conversation with unfinished events."""

LOOK_AFTER_S = 5.0
"""By then whoever accepted an event has usually answered it; if not, somebody looks."""

_JSON = json.JSONEncoder(ensure_ascii=False)

LET_GO_TRIES = 50
"""Whoever has just heard the end of a turn is not rejected because of it: a lease that is held over an idle
line is let go of a moment later, as a rule."""

TRIES_MAX = 200
PAUSE_S_MAX = 0.02


@dataclass(frozen=True, slots=True)
class Accepted:
    """An event that will be answered, or was."""

    conversation: Conversation
    claim: Key
    number: int
    lease: Lease | None = None
    """Of the conversation, when it was free."""
    is_new: bool = False
    """Put in line just now, not by an earlier delivery of the same event, which may still wait."""


@dataclass(frozen=True, slots=True)
class Head:
    counter: Condition
    next: int
    bytes: int
    running: JsonObject | None
    paused: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The event whose turn it is."""

    number: int
    event: Event
    item: Item
    head: Head


@dataclass(frozen=True, slots=True)
class Opening:
    """An event that nothing is before. Its turn may begin in the batch that accepts it; until then nothing
    of it is written."""

    conversation: Conversation
    event: Event
    stated: JsonObject
    body: str
    """Its hash."""
    claim: Key
    expect: Condition
    bid: Bid
    head: Head
    tail: Item | None

    @property
    def number(self) -> int:
        """Its place in line, when it comes to that."""
        return self.tail.value["next"] if self.tail else 1

    def accepted(self, lease: Lease) -> Accepted:
        return Accepted(self.conversation, self.claim, self.number, lease, is_new=True)


@dataclass(frozen=True, slots=True)
class Standing:
    """Of an event that is not done."""

    is_begun: bool
    ahead: int
    """So many events come before it."""
    turn_id: TurnId | None = None
    first: int | None = None
    """The number of its turn's first entry."""


@dataclass(frozen=True, slots=True)
class Line:
    """Of a conversation, as people see it."""

    waiting: int
    """Events; some of them may have been withdrawn."""
    turn_id: TurnId | None
    """The turn that runs."""


@dataclass(frozen=True, slots=True)
class Running:
    """An event that is being answered, by us or by someone who stopped in the middle."""

    number: int
    event: Event
    turn_id: TurnId
    first: int
    """The number of the turn's first entry."""
    attempt: int
    head: Head
    is_own: bool = False
    """Its model is a loop of the caller's own, which nobody else can go on with."""


@dataclass(frozen=True, slots=True)
class Paused:
    """A turn that waits for an answer."""

    number: int
    event: Event
    item: Item
    turn_id: TurnId
    first: int


class Inbox:
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

    def accept(self, agent_id: AgentId, event: Event, *, rejects: bool) -> Accepted:
        """Durably in line, once; the same event again leads to the same place.

        Conflict for an id that was used with another body; TooMany when the line is full; Busy for a
        conversation in use, when the agent `rejects` what comes then; NotFound for another user's.
        """
        self._check_may_say(event)
        claim, body = self.claim_key(agent_id, event.id), event.body_hash
        conversation: Conversation | None = None
        for number in _tries():
            standing = self._claims.look(claim, body)
            if isinstance(standing, Claim):
                return self._again(standing)
            if conversation is None:
                conversation = self._conversation(agent_id, event)
            try:
                return self._added(conversation, event, body, claim, standing, rejects=rejects)
            except Busy:
                if self._is_in_use(conversation) or number >= LET_GO_TRIES:
                    raise
            except Conflict as conflict:
                if conflict.name == str(conversation.exists.key):  # deleted in this instant
                    conversation = None
        raise Busy("the conversation", holder="very many at once")

    def receive(self, agent_id: AgentId, event: Event, *, rejects: bool) -> Accepted | Opening:
        """As `accept`, for whoever is ready to begin its turn: where nothing is before the event, nothing
        is written yet. What was prepared for an opening is good for nothing when somebody was faster."""
        return self._opening(agent_id, event) or self.accept(agent_id, event, rejects=rejects)

    def opened(
        self, opening: Opening, turn_id: TurnId, first: int, *, is_own: bool = False
    ) -> tuple[Running, tuple[Change, ...]]:
        """The turn that begins, and what must be written with its first entry by the opening's bid."""
        coming, ends = self._coming(
            opening.conversation,
            opening.event,
            opening.stated,
            self._claims.made(
                opening.claim,
                opening.body,
                _about(opening.conversation, opening.number),
                opening.expect,
            ),
            opening.tail,
        )
        running = Running(opening.number, opening.event, turn_id, first, 1, opening.head, is_own)
        begun = Head(opening.head.counter, opening.number + 1, ends, _running_json(running))
        job = self._jobs.wanted_anew(self._looking_after(opening.conversation))
        return running, (*coming, _head_put(opening.conversation, begun), *job)

    def refuse(self, opening: Opening, why: Failure) -> None:
        """Nothing has happened: the event may be sent again. Conflict when it was, meanwhile."""
        about = _about(opening.conversation, 0)
        claim, body, expect = opening.claim, opening.body, opening.expect
        refused = self._claims.refused(claim, body, about, expect, _told(why))
        self._records.write(opening.conversation.exists, refused)

    def claim_key(self, agent_id: AgentId, event_id: str) -> Key:
        return claim_key(self._principal.account_id, self._principal.user_id, agent_id, event_id)

    def claim(self, key: Key) -> Claim | None:
        return self._claims.find(key)

    def is_running(self, conversation: Conversation, number: int) -> bool:
        return self._head(conversation).next > number

    def ahead(self, accepted: Accepted) -> int:
        """How many events come before this one."""
        return self.standing(accepted.conversation, accepted.number).ahead

    def _is_in_use(self, conversation: Conversation) -> bool:
        """Something runs, or waits in line."""
        return not _is_idle(*self._ends(conversation))

    def line(self, conversation: Conversation) -> Line:
        head, tail = self._ends(conversation)
        waiting = tail.value["next"] - head.next if tail else 0
        return Line(waiting, TurnId(head.running["turn"]) if head.running else None)

    def standing(self, conversation: Conversation, number: int) -> Standing:
        head = self._head(conversation)
        running = head.running
        if running is not None and running["number"] == number:
            return Standing(True, 0, TurnId(running["turn"]), running["first"])
        ahead = max(0, number - head.next + (running is not None))
        return Standing(head.next > number, ahead)

    def next(self, conversation: Conversation, lease: Lease) -> Running | Waiting | None:
        """What the holder of the lease has to do: go on with what runs, begin what waits, or nothing."""
        head, tail = self._ends(conversation)
        if head.running is not None:
            return self._running(conversation, head.running, head)
        end = tail.value["next"] if tail else 1
        for number in range(head.next, end):
            item = self._records.get(_event_key(conversation, number))
            if item is not None:
                return Waiting(number, self._event(item), item, head)
        if tail is not None and head.next < end:  # the rest were withdrawn
            moved = replace(head, next=end, bytes=tail.value["bytes"])
            self._guarded(lease, _head_put(conversation, moved))
        return None

    def beginning(
        self,
        conversation: Conversation,
        waiting: Waiting,
        turn_id: TurnId,
        first: int,
        *,
        is_own: bool = False,
    ) -> tuple[Running, tuple[Change, ...]]:
        """The turn that begins, and what must be written with its first entry."""
        ends = waiting.item.value["ends"]
        running = Running(waiting.number, waiting.event, turn_id, first, 1, waiting.head, is_own)
        head = Head(waiting.head.counter, waiting.number + 1, ends, _running_json(running))
        still_there = Check(waiting.item.key, waiting.item.counter)
        return running, (still_there, _head_put(conversation, head))

    def resume(self, conversation: Conversation, running: Running, lease: Lease) -> Running:
        """Another attempt at a turn that was interrupted, counted before it is made."""
        again = replace(running, attempt=running.attempt + 1)
        head = replace(running.head, running=_running_json(again))
        self._guarded(lease, _head_put(conversation, head))
        return again

    def finish(
        self,
        conversation: Conversation,
        running: Running,
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

    def paused(self, conversation: Conversation, head: Head | None = None) -> Paused | None:
        """The turn that waits for an answer, if one does."""
        data = (head or self._head(conversation)).paused
        if data is None:
            return None
        item = self._begun(conversation, data["number"])
        event, turn_id = self._event(item), TurnId(data["turn"])
        return Paused(data["number"], event, item, turn_id, data["first"])

    def pause(
        self,
        conversation: Conversation,
        running: Running,
        ending: Ending,
        lease: Lease,
        *,
        is_last: bool = False,
    ) -> None:
        """The turn rests. `is_last` as in `finish`."""
        claim = self._claims.find(conversation.claim_key(running.event.id))
        told = () if claim is None else (self._claims.resting(claim, ending.as_json()),)
        head = self._head(conversation)
        paused = {"number": running.number, "turn": running.turn_id, "first": running.first}
        rests = replace(head, running=None, paused=paused)
        self._settle(conversation, None, rests, told, lease, is_last=is_last)

    def answering(
        self, conversation: Conversation, waiting: Waiting, paused: Paused, rest: Ending | None
    ) -> tuple[Running | None, tuple[Change, ...]]:
        """What must be written with the entry of an answer. `rest`: how the turn still waits; None when
        this was the last that it waited for, and it runs again."""
        ends = waiting.item.value["ends"]
        head = replace(waiting.head, next=waiting.number + 1, bytes=ends)
        running = None
        if rest is None:
            running = Running(paused.number, paused.event, paused.turn_id, paused.first, 1, head)
            head = replace(head, running=_running_json(running), paused=None)
        return running, (
            Delete(waiting.item.key, expect=waiting.item.counter),
            _head_put(conversation, head),
            *self._led(conversation, waiting.event, paused.event),
            *self._standing(conversation, paused.event, rest),
        )

    def abandoning(
        self, conversation: Conversation, paused: Paused, ending: Ending
    ) -> tuple[Change, ...]:
        """What must be written with the entry that says that nobody waits any more."""
        claim = self._claims.find(conversation.claim_key(paused.event.id))
        outcome = () if claim is None else (self._claims.finished(claim, ending.as_json()),)
        head = replace(self._head(conversation), paused=None)
        return (
            Delete(paused.item.key),
            _head_put(conversation, head),
            *outcome,
        )

    def cancel(self, conversation: Conversation) -> TurnId | None:
        """Whoever runs a turn there is to end it; None when none runs."""
        running = self._head(conversation).running
        if running is None:
            return None
        self._records.write(Put(_cancel_key(conversation), {"turn": running["turn"]}))
        return TurnId(running["turn"])

    def is_cancelled(self, conversation: Conversation, turn_id: TurnId) -> bool:
        item = self._records.get(_cancel_key(conversation))
        return item is not None and item.value["turn"] == turn_id

    def began(self, conversation: Conversation, claim: Claim) -> Claim:
        """Of the event that began the turn which this event began or answered: there stands what came of
        it, or that it waits. NotFound when that was too long ago."""
        if claim.outcome is None or "of" not in claim.outcome:
            return claim
        began = self._claims.find(conversation.claim_key(claim.outcome["of"]))
        if began is None:
            raise NotFound("event", claim.outcome["of"])
        return began

    def forget(self, gone: Waiting | Paused) -> None:
        """What lies beside the records of an event that is not in the line any more."""
        self._forget_large(gone.item.value["event"])

    def give_back(
        self, conversation: Conversation, waiting: Waiting, why: Failure, lease: Lease
    ) -> None:
        """Nothing has happened yet: the event may be sent again."""
        claim = self._claims.find(conversation.claim_key(waiting.event.id))
        refusal = () if claim is None else (self._claims.released(claim, _told(why)),)
        head = replace(waiting.head, next=waiting.number + 1, bytes=waiting.item.value["ends"])
        self._settle(conversation, waiting.number, head, refusal, lease)

    def withdraw(self, accepted: Accepted) -> bool:
        """Take back an event that nobody has begun. False when it was."""
        item = self._records.get(_event_key(accepted.conversation, accepted.number))
        claim = self._claims.find(accepted.claim)
        if item is None or claim is None or claim.outcome is not None or claim.refusal is not None:
            return False
        if self.is_running(accepted.conversation, accepted.number):
            return False
        head = self._head(accepted.conversation)
        told = {"code": "withdrawn", "message": "it was withdrawn", "remedy": None}
        try:
            self._records.write(
                _check_head(accepted.conversation, head),
                Delete(item.key, expect=item.counter),
                self._claims.released(claim, told),
            )
        except Conflict:
            return self.withdraw(accepted)
        self._forget_large(item.value["event"])
        return True

    def _check_may_say(self, event: Event) -> None:
        if event.system_kept and not self._principal.may_configure:
            raise Forbidden(SAY_FOR_GOOD)

    def _conversation(self, agent_id: AgentId, event: Event) -> Conversation:
        """An answer begins no conversation. NotFound."""
        if not event.is_answer:
            return self._conversations.open(agent_id, event.conversation_key)
        found = self._conversations.find(agent_id, event.conversation_key)
        if found is None:
            raise NotFound("conversation", event.conversation_key)
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

    def _again(self, claim: Claim) -> Accepted:
        conversation = self._conversations.get(claim.about["conversation"])
        return Accepted(conversation, claim.key, claim.about["number"])

    def _opening(self, agent_id: AgentId, event: Event) -> Opening | None:
        """None when it has been here before, answers something, is large, or is not alone."""
        if event.is_answer:
            return None
        self._check_may_say(event)
        stated = event.as_json()
        if _is_large(stated):
            return None
        claim, body = self.claim_key(agent_id, event.id), body_hash_of(stated)
        expect = self._claims.look(claim, body)
        if isinstance(expect, Claim):
            return None
        conversation = self._conversation(agent_id, event)
        head, tail = self._ends(conversation)
        bid = self._bid(conversation, rejects=False) if _is_idle(head, tail) else None
        if bid is None or head.paused is not None:
            return None
        return Opening(conversation, event, stated, body, claim, expect, bid, head, tail)

    def _coming(
        self,
        conversation: Conversation,
        event: Event,
        stated: JsonObject,
        claimed: Put,
        tail: Item | None,
    ) -> tuple[tuple[Change, ...], int]:
        """What puts an event into the line, and the bytes that have come with it."""
        number: int = tail.value["next"] if tail else 1
        size = event.size_bytes
        ends: int = size + (tail.value["bytes"] if tail else 0)
        key = _event_key(conversation, number)
        item = Put(key, {"event": stated, "bytes": size, "ends": ends}, ABSENT)
        counter = tail.counter if tail else ABSENT
        moved = Put(_tail_key(conversation), {"next": number + 1, "bytes": ends}, counter)
        return (conversation.exists, claimed, item, moved), ends

    def _added(
        self,
        conversation: Conversation,
        event: Event,
        body: str,
        claim: Key,
        expect: Condition,
        *,
        rejects: bool,
    ) -> Accepted:
        head, tail = self._ends(conversation)
        number: int = tail.value["next"] if tail else 1
        self._check_room(conversation, head, tail, event.size_bytes)
        bid = self._bid(conversation, rejects=rejects)
        claimed = self._claims.made(claim, body, _about(conversation, number), expect)
        stated = self._small(conversation, event)
        coming, _ = self._coming(conversation, event, stated, claimed, tail)
        job = self._jobs.wanted(self._looking_after(conversation), at_the_latest=True)
        bids = bid.changes if bid else ()
        try:
            counters = self._records.write(*bids, *coming, *job)
        except Conflict:
            self._forget_large(stated)
            raise
        except Unavailable:
            if bid is not None:
                self._leases.lose(bid)
            raise
        lease = bid.won(counters) if bid else None
        return Accepted(conversation, claim, number, lease, is_new=True)

    def _check_room(
        self, conversation: Conversation, head: Head, tail: Item | None, size: int
    ) -> None:
        """An event that nothing is before waits for nobody, and may be as large as events may be."""
        if tail is None or _is_idle(head, tail):
            return
        if (
            _is_full(tail.value["next"] - head.next, tail.value["bytes"] - head.bytes + size)
            is None
        ):
            return
        start, end = _event_key(conversation, head.next).sort, _tail_key(conversation).sort
        waiting = self._records.scan(_tail_key(conversation).partition, start=start, end=end)
        events = [item for item in waiting if "event" in item.value]  # without those withdrawn
        full = _is_full(len(events), sum(item.value["bytes"] for item in events) + size)
        if full is not None:
            raise full

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
        head: Head | None,
        ending: tuple[Put, ...],
        lease: Lease,
        *,
        is_last: bool = False,
    ) -> None:
        """The event, if it is one, is done with, and so are job and lease when no other event waits."""
        item = None if number is None else self._records.get(_event_key(conversation, number))
        head = head or replace(self._head(conversation), running=None)
        gone = (Delete(item.key),) if item else ()
        for job in (self._job_when_empty(conversation, head), ()):
            lets_go = is_last or bool(job)
            guard = self._leases.releasing(lease) if lets_go else lease.guard
            try:
                self._records.write(guard, *ending, _head_put(conversation, head), *gone, *job)
            except Conflict as conflict:
                if job and conflict.name == str(wish_key(_job_id(conversation))):
                    continue  # somebody has just added an event: the job stays
                raise LeaseLost(lease.key) from conflict
            if lets_go:
                self._leases.let_go(lease)
            break
        if item is not None:
            self._forget_large(item.value["event"])

    def _job_when_empty(self, conversation: Conversation, head: Head) -> tuple[Change, ...]:
        """The job is read before the tail: whoever adds an event writes both, so that what is added
        after this look makes the end of the job conflict."""
        changes = self._jobs.unwanted(_job_id(conversation))
        tail = self._tail(conversation)
        return changes if tail is None or tail.value["next"] == head.next else ()

    def _guarded(self, lease: Lease, *changes: Change) -> None:
        try:
            self._records.write(lease.guard, *changes)
        except Conflict as conflict:
            if lease.is_lost_by(conflict):
                raise LeaseLost(lease.key) from conflict
            raise

    def _running(self, conversation: Conversation, data: JsonObject, head: Head) -> Running:
        event = self._event(self._begun(conversation, data["number"]))
        turn_id, first, attempt = TurnId(data["turn"]), data["first"], data["attempt"]
        is_own: bool = data.get("own", False)
        return Running(data["number"], event, turn_id, first, attempt, head, is_own)

    def _begun(self, conversation: Conversation, number: int) -> Item:
        """Of the event of a turn that has not ended."""
        item = self._records.get(_event_key(conversation, number))
        if item is None:
            raise NotFound("event", f"{number} of conversation {conversation.id}")
        return item

    def _head(self, conversation: Conversation) -> Head:
        return self._ends(conversation)[0]

    def _tail(self, conversation: Conversation) -> Item | None:
        return self._ends(conversation)[1]

    def _ends(self, conversation: Conversation) -> tuple[Head, Item | None]:
        """Both ends of the line, in one look."""
        start, end = _head_key(conversation).sort, _tail_key(conversation).sort + "\0"
        partition = inbox_partition(conversation.id)
        found = {
            item.key.sort: item for item in self._records.scan(partition, start=start, end=end)
        }
        tail, item = found.get("tail"), found.get("head")
        if item is None:
            return Head(ABSENT, 1, 0, None), tail
        value = item.value
        paused = value.get("paused")
        return Head(item.counter, value["next"], value["bytes"], value["running"], paused), tail

    def _small(self, conversation: Conversation, event: Event) -> JsonObject:
        """The event, or where it lies, when it is too large for a record."""
        value = event.as_json()
        if not _is_large(value):
            return value
        name = f"{conversation.id}/event-{secrets.token_hex(8)}.json"
        self._large.write(name, _JSON.encode(value).encode(), expect=ANY)
        return {"id": event.id, "large": name}

    def _event(self, item: Item) -> Event:
        value = item.value["event"]
        if "large" in value:
            value = json.loads(self._large.read(value["large"]).data)
        return event_of(value)

    def _forget_large(self, stated: JsonObject) -> None:
        if "large" in stated:
            self._large.delete(stated["large"], expect=ANY)


def _tries() -> Iterator[int]:
    """Others were faster: again, after a random moment, so that not all come at the same one."""
    for number in range(TRIES_MAX):
        yield number
        time.sleep(random.uniform(0, PAUSE_S_MAX))  # noqa: S311 - not secret


def _is_idle(head: Head, tail: Item | None) -> bool:
    """Nothing runs, nothing waits in line."""
    return head.running is None and (tail is None or head.next == tail.value["next"])


def _is_large(stated: JsonObject) -> bool:
    """For a record that has more to hold."""
    return len(_JSON.encode(stated).encode()) > VALUE_BYTES_MAX // 2


def _is_full(waiting: int, waiting_bytes: int) -> TooMany | None:
    """`waiting_bytes` with those of the event that would like to join."""
    if waiting >= WAITING_MAX:
        what = "events waiting in the conversation"
        return TooMany(what, maximum=WAITING_MAX, actual=waiting + 1, unit="events")
    if waiting_bytes > WAITING_BYTES_MAX:
        what = "texts waiting in the conversation"
        return TooMany(what, maximum=WAITING_BYTES_MAX, actual=waiting_bytes, unit="bytes")
    return None


def _about(conversation: Conversation, number: int) -> JsonObject:
    """What a claim is about: the place in line; 0 for what never stood there."""
    return {"conversation": conversation.id, "number": number}


def _told(why: Failure) -> JsonObject:
    return {"code": why.code, "message": str(why), "remedy": why.remedy}


def _job_id(conversation: Conversation) -> str:
    return f"{TURN}:{conversation.id}"


def _running_json(running: Running) -> JsonObject:
    return {
        "number": running.number,
        "turn": running.turn_id,
        "first": running.first,
        "attempt": running.attempt,
        **({"own": True} if running.is_own else {}),
    }


def _head_put(conversation: Conversation, head: Head) -> Put:
    paused = {"paused": head.paused} if head.paused is not None else {}
    value = {"next": head.next, "bytes": head.bytes, "running": head.running, **paused}
    return Put(_head_key(conversation), value, head.counter)


def _check_head(conversation: Conversation, head: Head) -> Check:
    return Check(_head_key(conversation), head.counter)


def _head_key(conversation: Conversation) -> Key:
    return Key(inbox_partition(conversation.id), "head")


def _tail_key(conversation: Conversation) -> Key:
    return Key(inbox_partition(conversation.id), "tail")


def _cancel_key(conversation: Conversation) -> Key:
    return Key(inbox_partition(conversation.id), "cancel")


def _event_key(conversation: Conversation, number: int) -> Key:
    return Key(inbox_partition(conversation.id), f"{number:012}")
