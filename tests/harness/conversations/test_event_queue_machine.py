"""The event queue of a conversation under faults: processes crash, sleep, lose answers and compete.

Each process acts as a lease holder, one write at a time: it takes the lease, starts the next event,
stores the reply and the outcome. Or it accepts and starts an event for an idle conversation in one batch.
In the end every accepted event is in the transcript once, in order of acceptance, followed by its only
answer. An unfinished event has a job at every moment.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.event_queue import EventQueue
from harness.conversations.incoming_event import IncomingEvent, nothing_forbidden
from harness.conversations.queue_state import NextEvent, RunningTurn, is_large
from harness.conversations.queued_event import QueuedEvent
from harness.conversations.turn_start import TurnStart, start_of
from harness.jobs.job import Jobs
from harness.messages.event import Event
from harness.messages.message import Message, Text, user
from harness.transcripts.outcome import Ending
from harness.transcripts.transcript import Entry
from tests.harness.talk import log_of
from tests.machines import BOUNDED, UNSHRUNK, Flaky
from tests.workspaces.coordination.test_lease_state_machine import WithoutFence
from workspaces.accounts.account import Person, Principal
from workspaces.conditions import ANY
from workspaces.coordination.claim import Claim, Claims
from workspaces.coordination.lease import Bid, Lease, Leases
from workspaces.errors import Busy, Conflict, LeaseLost, NotFound, Unavailable
from workspaces.ids import AccountId, AgentId, TurnId, UserId, new_id
from workspaces.storage.faulty import StoreFault
from workspaces.storage.in_memory import MemoryBlobs
from workspaces.storage.records import Key, RecordChange, with_prefix
from workspaces.timestamp import stamp_of

NAMES = ("red", "green", "blue")
AGENT = AgentId("agent_1")
PERSON = Person(UserId("usr_1"), "owner")
OWNER = Principal(AccountId("acct_1"), PERSON, PERSON)
names = st.sampled_from(NAMES)
events = st.integers(0, 11)


def say(event: int) -> Event:
    """Now and then too much for a record."""
    return Event.said(f"e{event}", "c1", f"text {event}" if event % 5 else "x" * 70_000)


@dataclass
class Process:
    name: str
    leases: Leases
    inbox: EventQueue
    conversations: Conversations
    lease: Lease | None = None
    waiting: NextEvent | None = None
    running: RunningTurn | None = None
    entries: list[Entry] = field(default_factory=list)
    start: TurnStart | None = None
    next_number: int = 0
    """Of the entry with which it opens, as it was when it was prepared."""

    def forget(self) -> None:
        self.lease = self.waiting = self.running = None
        self.entries = []


class Machine(RuleBasedStateMachine):
    leases_as: ClassVar[type[Leases]] = Leases
    inbox_as: ClassVar[type[EventQueue]] = EventQueue

    def __init__(self) -> None:
        super().__init__()
        self.world = Flaky(*NAMES, "last")
        self.large = MemoryBlobs()
        self.processes = {name: self.started(name) for name in NAMES}
        self.conversation = self.processes["red"].conversations.open(AGENT, "c1")
        self.accepted: dict[int, int] = {}
        """Event → its place in line, of those that were not taken back."""

    def started(self, name: str) -> Process:
        wire, clock = self.world.wires[name], self.world.clocks[name]
        leases = self.leases_as(wire, clock, process=f"boot:{name}/1/1")
        jobs = Jobs(wire, clock, process=f"boot:{name}/1/1")
        conversations = Conversations(OWNER, wire, self.large, clock, leases=leases, jobs=jobs)
        inbox = self.inbox_as(conversations)
        return Process(name, leases, inbox, conversations)

    @rule(name=names, event=events)
    def accept(self, name: str, event: int) -> None:
        process = self.processes[name]
        try:
            accepted = process.inbox.accept(AGENT, say(event), rejects=False)
        except Unavailable:
            self.look_for(event)
            return
        self.was_accepted(process, event, accepted)

    def look_for(self, event: int) -> None:
        """The answer got lost: was it accepted?"""
        claim = self.processes["red"].inbox.claim_key(AGENT, f"e{event}")
        found = Claims(self.world.store, self.world.true_clock).find(claim)
        if found is not None and found.refusal is None:
            self.accepted.setdefault(event, found.about["number"])

    def was_accepted(self, process: Process, event: int, accepted: QueuedEvent) -> None:
        if accepted.lease is not None and process.lease is None:
            process.forget()
            process.lease, process.waiting = accepted.lease, accepted.first
        assert self.accepted.setdefault(event, accepted.number) == accepted.number

    @rule(name=names, event=events)
    def receive(self, name: str, event: int) -> None:
        """It is prepared now and written later: anything may come in between."""
        process = self.processes[name]
        try:
            inbox, said = process.inbox, say(event)
            found = inbox.start(AGENT, said) or inbox.accept(AGENT, said, rejects=False)
            if isinstance(found, TurnStart):
                transcript = process.conversations.transcript(self.conversation)
                process.next_number = transcript.window().next_number
        except Unavailable:
            self.look_for(event)
        else:
            if isinstance(found, TurnStart):
                process.start = found
            else:
                self.was_accepted(process, event, found)

    @rule(name=names, is_refused=st.booleans())
    def open(self, name: str, *, is_refused: bool = False) -> None:
        process, start = self.processes[name], self.processes[name].start
        if start is None:
            return
        process.start = None
        if is_refused:
            self.refuse(process, start)
            return
        event, log = int(start.event.id[1:]), log_of(process.conversations, start)
        entry = self.first_entry(start, process.next_number)
        try:
            running = start.write(log, entry)
        except (Conflict, LeaseLost):
            return
        except Unavailable:
            assert isinstance(start.right, Bid)
            process.leases.lose(start.right)
            self.look_for(event)
            return
        self.assert_newest(log.lease)
        process.forget()
        process.lease, process.running, process.entries = log.lease, running, [entry]
        assert self.accepted.setdefault(event, start.number) == start.number

    def refuse(self, process: Process, start: TurnStart) -> None:
        """It could not be prepared."""
        with suppress(Conflict, Unavailable):
            process.inbox.refuse(start, NotFound("agent", AGENT))

    @rule(name=names, other=names, event=events, after=st.integers(0, 8))
    def open_meanwhile(self, name: str, other: str, event: int, after: int) -> None:
        if name != other:
            self.receive(other, event)
            self.world.meanwhile(name, lambda: self.open(other), after)

    @rule(name=names, other=names, waits=events, event=events)
    def open_while_something_waits(self, name: str, other: str, waits: int, event: int) -> None:
        """And nobody is at it."""
        self.accept(other, waits)
        self.release(other)
        self.receive(name, event)
        self.open(name)

    @rule(name=names, event=events)
    def withdraw(self, name: str, event: int) -> None:
        process = self.processes[name]
        if event not in self.accepted:
            return
        claim = process.inbox.claim_key(AGENT, f"e{event}")
        found = Claims(self.world.store, self.world.true_clock).find(claim)
        assert found is not None
        with suppress(Unavailable):
            place = process.inbox.accept(AGENT, say(event), rejects=False)
            process.inbox.withdraw(place)
        found = Claims(self.world.store, self.world.true_clock).find(claim)
        if found is not None and found.refusal is not None:
            del self.accepted[event]

    @rule(name=names)
    def acquire(self, name: str) -> None:
        process = self.processes[name]
        if process.lease is not None:
            return
        try:
            process.lease = process.leases.acquire(self.conversation.lease_key)
        except (Busy, Unavailable):
            process.forget()

    @rule(name=names, pause=st.sampled_from([30.0, 61.0]))
    def follow(self, name: str, pause: float) -> None:
        self.acquire(name)
        self.wait(pause)
        self.acquire(name)

    @rule(name=names, count=st.integers(1, 5))
    def work(self, name: str, count: int) -> None:
        for _ in range(count):
            self.guarded(name, self.step)

    @rule(name=names)
    def give_back(self, name: str) -> None:
        self.guarded(name, self.given_back)

    @rule(name=names)
    def release(self, name: str) -> None:
        process = self.processes[name]
        if process.lease is not None:
            with suppress(Unavailable):
                process.leases.release(process.lease)
        process.forget()

    @rule(name=names)
    def crash(self, name: str) -> None:
        self.processes[name] = self.started(name)

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(
        name=names,
        fault=st.sampled_from([StoreFault.BEFORE, StoreFault.AFTER]),
        after=st.integers(0, 8),
    )
    def fault(self, name: str, fault: StoreFault, after: int) -> None:
        self.world.lose_next(name, fault, after)

    @rule(name=names, other=names, event=events, after=st.integers(0, 8))
    def accept_meanwhile(self, name: str, other: str, event: int, after: int) -> None:
        if name != other:
            self.world.meanwhile(name, lambda: self.accept(other, event), after)

    @rule(name=names, other=names, event=events, after=st.integers(0, 8))
    def accept_at_the_end(self, name: str, other: str, event: int, after: int) -> None:
        """Just while the last event in line is being finished."""
        process = self.processes[name]
        self.acquire(name)
        for _ in range(4):
            entries = process.entries
            is_last_step = bool(entries) and entries[-1].message.role == "assistant"
            if is_last_step and name != other:
                self.world.meanwhile(name, lambda: self.accept(other, event), after)
            self.guarded(name, self.step)
            if is_last_step:
                return

    @rule(name=names, other=names, after=st.integers(0, 8))
    def follow_meanwhile(self, name: str, other: str, after: int) -> None:
        if name != other:
            self.world.meanwhile(name, lambda: self.follow(other, 61.0), after)

    def guarded(self, name: str, action: Any) -> None:
        process = self.processes[name]
        try:
            action(process)
        except LeaseLost:
            process.forget()
        except Conflict as conflict:  # withdrawn in this instant
            assert process.waiting is not None
            assert conflict.name == str(process.waiting.item.key)
            process.waiting = None
        except Unavailable:
            process.forget()

    def step(self, process: Process) -> None:
        """The next thing a holder does."""
        if process.lease is None:
            return
        inbox, conversation, lease = process.inbox, self.conversation, process.lease
        transcript = process.conversations.transcript(conversation)
        if process.running is not None and process.entries[-1].message.role == "assistant":
            number = process.entries[-1].number
            first, turn_id = process.running.first, process.running.turn_id
            ending, has_enough = Ending("done", turn_id, first, number), number % 3 == 0
            inbox.end(conversation, process.running, ending, lease, is_last=has_enough)
            self.ended(process, lease)
        elif process.running is not None:
            answer = Message("assistant", (Text(f"answer to {process.running.event.id}"),))
            entry = self.entry(process, process.entries[-1].number + 1, answer)
            transcript.append(entry, lease)
            self.assert_newest(lease)
            process.entries.append(entry)
        elif process.waiting is not None:
            start = start_of(conversation, process.waiting, lease)
            entry = self.first_entry(start, transcript.window().next_number)
            running = start.write(log_of(process.conversations, start), entry)
            self.assert_newest(lease)
            process.running, process.waiting, process.entries = running, None, [entry]
        else:
            found = inbox.next(conversation, lease)
            if isinstance(found, RunningTurn):
                process.running = inbox.resume(conversation, found, lease)
                process.entries = list(transcript.entries(found.first))
            else:
                process.waiting = found

    def ended(self, process: Process, lease: Lease) -> None:
        if process.leases.has_let_go(lease):
            process.leases.release(lease)
            process.forget()
        process.running, process.entries = None, []

    def first_entry(self, start: TurnStart, number: int) -> Entry:
        said, at = user(start.event.message.text[:20]), stamp_of(self.world.true_clock.now())
        return Entry(number, at, TurnId(new_id("turn")), said, start.event.id)

    def assert_newest(self, lease: Lease) -> None:
        fence = self.world.store.get(Key(lease.key, "fence"))
        assert fence is not None
        assert fence.counter == lease.generation, "written by a stale holder"

    def given_back(self, process: Process) -> None:
        if process.lease is None or process.waiting is None:
            return
        waiting = process.waiting
        why = NotFound("agent", AGENT)
        event = int(waiting.event.id[1:])
        process.waiting = None
        try:
            process.inbox.give_back(self.conversation, waiting, why, process.lease)
        finally:
            claim = process.inbox.claim_key(AGENT, waiting.event.id)
            found = Claims(self.world.store, self.world.true_clock).find(claim)
            if found is not None and found.refusal is not None:
                self.accepted.pop(event, None)

    def entry(self, process: Process, number: int, message: Message) -> Entry:
        assert process.running is not None
        at = stamp_of(self.world.true_clock.now())
        return Entry(number, at, process.running.turn_id, message)

    @invariant()
    def whoever_waits_is_looked_after(self) -> None:
        store, partition = self.world.store, f"inbox:{self.conversation.id}"
        waiting = with_prefix(store, partition, "0")
        job = store.scan("jobs", start=f"turn:{self.conversation.id}", limit=1)
        if waiting:
            assert job, "an unfinished event without its job"
            assert "due" in job[0].value, "an unfinished event whose job is done"
            due = store.scan("jobs-due")
            assert any(hint.key.sort.endswith(job[0].key.sort) for hint in due)

    def teardown(self) -> None:
        """Everybody else is gone; one more process comes and does what is left."""
        self.world.quiet()
        last = self.started("last")
        self.processes["last"] = last
        self.follow("last", 61.0)
        while self.has_more(last):
            self.step(last)
        self.assert_answered_once_in_order(last)

    def has_more(self, last: Process) -> bool:
        self.acquire("last")
        assert last.lease is not None
        is_at_it = last.running is not None or last.waiting is not None
        return is_at_it or last.inbox.next(self.conversation, last.lease) is not None

    def assert_answered_once_in_order(self, last: Process) -> None:
        entries = list(last.conversations.transcript(self.conversation).entries())
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        expected = [f"e{event}" for event in sorted(self.accepted, key=self.accepted.__getitem__)]
        assert [entry.event_id for entry in entries[::2]] == expected
        answers = [entry.message.text for entry in entries[1::2]]
        assert answers == [f"answer to {event}" for event in expected]
        for event in expected:
            claim = last.inbox.claims.find(last.inbox.claim_key(AGENT, event))
            assert claim is not None
            assert claim.outcome is not None
            own = entries[claim.outcome["first"] - 1]
            assert own.event_id == event
        left = with_prefix(self.world.store, f"inbox:{self.conversation.id}", "0")
        assert left == []


def test_every_event_is_answered_once_and_in_order_despite_every_fault() -> None:
    run_state_machine_as_test(Machine, settings=BOUNDED)


class Careless(EventQueue):
    """Ends the job without asking whether somebody has just added an event."""

    def _job_when_empty(self, conversation: Conversation, head: Any) -> tuple[RecordChange, ...]:
        job = super()._job_when_empty(conversation, head)
        return tuple(_blind(change) for change in job)


class Silent(EventQueue):
    """Adds an event without a job that looks after it."""

    def _job_of(self, conversation: Conversation) -> Any:
        job = super()._job_of(conversation)
        return type(job)("somebody else", job.kind, job.due, job.payload)


class Repeating(EventQueue):
    """Does not take notice of what runs already."""

    def next(self, conversation: Conversation, lease: Lease) -> RunningTurn | NextEvent | None:
        found = super().next(conversation, lease)
        if isinstance(found, RunningTurn):
            item = self._records.get(Key(f"inbox:{conversation.id}", f"{found.number:012}"))
            assert item is not None
            return NextEvent(found.number, found.event, item, found.head)
        return found


class Hasty(EventQueue):
    """Makes a turn begin at once although others wait in line."""

    def start(self, agent_id: AgentId, event: Event) -> TurnStart | None:
        incoming = IncomingEvent(event, nothing_forbidden)
        claim, stated = self.claim_key(agent_id, event.id), incoming.json
        expect = self.claims.look(claim, incoming.has_body)
        conversation = self._conversation(agent_id, event)
        bid = self._bid(conversation, rejects=False)
        if isinstance(expect, Claim) or bid is None or is_large(stated):
            return None
        head, tail = self._conversations.queue(conversation).ends()
        place = self._place(
            conversation,
            incoming,
            stated,
            tail,
            claim=claim,
            expect=expect,
            is_alone=True,
        )
        return TurnStart(conversation, event, place.number, head, place.ends, bid, place)


def _blind(change: Any) -> Any:
    return replace(change, expect=ANY)


@pytest.mark.parametrize("mutant", [Careless, Silent, Repeating, Hasty])
def test_the_state_machine_detects_a_faulty_event_queue(mutant: type[EventQueue]) -> None:
    class Mutated(Machine):
        inbox_as = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Mutated, settings=UNSHRUNK)


def test_the_state_machine_detects_a_missing_lease_guard() -> None:
    class Mutated(Machine):
        leases_as = WithoutFence

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Mutated, settings=UNSHRUNK)
