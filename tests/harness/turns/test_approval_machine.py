"""Approvals under faults: processes crash, sleep, lose answers and compete.

Every fourth event leads to a call that needs approval. A turn is completed only after its call was approved
once, or is interrupted by another message. Every answer counts once or is given back. All callers of a turn
receive the same outcome.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from harness.conversations.conversation import Conversation
from harness.conversations.event_queue import AlsoWritten, EventQueue, nothing_also
from harness.conversations.queue_state import NextEvent, PausedTurn, RunningTurn
from harness.messages.event import Approval, Event
from harness.messages.message import Message, ToolCall
from harness.messages.pending_call import RequiredAnswer
from harness.transcripts.approval import answered, nothing_waits, pending, unanswered
from harness.transcripts.outcome import Ending
from harness.transcripts.transcript import Entry
from tests.harness.conversations.test_event_queue_machine import (
    AGENT,
    Machine,
    Process,
    events,
    names,
)
from tests.machines import BOUNDED, UNSHRUNK
from workspaces.coordination.claim import Claims
from workspaces.coordination.lease import Lease
from workspaces.errors import Failure, NotFound, Unavailable
from workspaces.storage.records import Key, RecordChange, with_prefix
from workspaces.timestamp import stamp_of

ANSWERS = 100
"""Event n is answered by event 100 + n."""


def asks(event: int) -> bool:
    return event % 4 == 1


def number_of(event_id: str) -> int:
    return int(event_id[1:])


class Asking(Machine):
    @rule(name=names, event=events)
    def answer(self, name: str, event: int) -> None:
        process = self.processes[name]
        allowed = Approval(call_id=f"t{event}", is_allowed=True)
        answer = Event(f"e{ANSWERS + event}", "c1", (allowed,))
        try:
            accepted = process.inbox.accept(AGENT, answer, rejects=False)
        except Unavailable:
            claim = process.inbox.claim_key(AGENT, answer.id)
            found = Claims(self.world.store, self.world.true_clock).find(claim)
            if found is not None and found.refusal is None:
                self.accepted.setdefault(ANSWERS + event, found.about["number"])
            return
        if accepted.lease is not None and process.lease is None:
            process.forget()
            process.lease = accepted.lease
        assert self.accepted.setdefault(ANSWERS + event, accepted.number) == accepted.number

    @rule(name=names, other=names, event=events, after=st.integers(0, 8))
    def answer_meanwhile(self, name: str, other: str, event: int, after: int) -> None:
        if name != other:
            self.world.meanwhile(name, lambda: self.answer(other, event), after)

    @rule(name=names, event=st.sampled_from([1, 5, 9]), is_answered=st.booleans())
    def ask(self, name: str, event: int, is_answered: bool) -> None:
        """All of it, so that it is not left to luck."""
        self.accept(name, event)
        self.acquire(name)
        self.work(name, 5)
        if is_answered:
            self.answer(name, event)
            self.work(name, 5)

    def step(self, process: Process) -> None:
        lease = process.lease
        if lease is None:
            return
        inbox, conversation = process.inbox, self.conversation
        transcript = process.conversations.transcript(conversation)
        if process.running is not None:
            self.go_on(process, process.running, lease)
        elif process.waiting is not None:
            waiting = process.waiting
            try:
                paused = process.conversations.queue(conversation).paused(waiting.head)
            except NotFound:  # somebody has taken over since, and the guard will say so
                self.given_back(process)
                return
            if waiting.event.is_answer:
                self.take_answer(process, waiting, paused, lease)
            elif paused is not None:
                self.abandon(process, paused, lease)
            else:
                super().step(process)
        else:
            found = inbox.next(conversation, lease)
            if isinstance(found, RunningTurn):
                process.running = inbox.resume(conversation, found, lease)
                process.entries = list(transcript.entries(found.first))
            else:
                process.waiting = found

    def go_on(self, process: Process, running: RunningTurn, lease: Lease) -> None:
        newest = process.entries[-1]
        event = number_of(running.event.id)
        if pending(process.entries):
            ending = Ending("waiting", running.turn_id, running.first, newest.number)
            is_last = newest.number % 3 == 0
            process.inbox.end(self.conversation, running, ending, lease, is_last=is_last)
            self.ended(process, lease)
        elif newest.message.role == "user" and len(process.entries) == 1 and asks(event):
            call = ToolCall(f"t{event}", "write", {})
            entry = self.entry(process, newest.number + 1, Message("assistant", (call,)))
            entry = replace(entry, asks=(RequiredAnswer(call.id, "approval", "notes"),))
            process.conversations.transcript(self.conversation).append(entry, lease)
            self.assert_newest(lease)
            process.entries.append(entry)
        else:
            super().step(process)

    def take_answer(
        self, process: Process, waiting: NextEvent, paused: PausedTurn | None, lease: Lease
    ) -> None:
        inbox, conversation = process.inbox, self.conversation
        transcript = process.conversations.transcript(conversation)
        try:
            if paused is None:
                raise nothing_waits(None)
            entries = list(transcript.entries(paused.first))
            found = answered(entries, waiting.event.answers, lambda _, text: text)
        except Failure as why:
            if isinstance(why, Unavailable):
                raise
            self.given_back(process)
            return
        number, at = entries[-1].number + 1, stamp_of(self.world.true_clock.now())
        entry = Entry(
            number, at, paused.turn_id, found.message, waiting.event.id, allowed=found.allowed
        )
        running, also = inbox.answering(conversation, waiting, paused, None)
        transcript.append(entry, lease, *also)
        self.assert_newest(lease)
        process.waiting, process.running = None, running
        process.entries = [*entries, entry]

    def abandon(self, process: Process, paused: PausedTurn, lease: Lease) -> None:
        transcript = process.conversations.transcript(self.conversation)
        entries = list(transcript.entries(paused.first))
        number, at = entries[-1].number + 1, stamp_of(self.world.true_clock.now())
        said = unanswered(entries, "superseded")
        ending = Ending("interrupted", paused.turn_id, paused.first, number)
        also = process.inbox.abandoning(self.conversation, paused, ending)
        transcript.append(Entry(number, at, paused.turn_id, said), lease, *also)
        self.assert_newest(lease)
        process.waiting = None  # looked at again: the line's head has moved

    @invariant()
    def whoever_waits_is_looked_after(self) -> None:
        """But what waits for a person."""
        store, partition = self.world.store, f"inbox:{self.conversation.id}"
        head = store.get(Key(partition, "head"))
        paused = (head.value.get("paused") or {}).get("number") if head else None
        waiting = [
            item for item in with_prefix(store, partition, "0") if int(item.key.sort) != paused
        ]
        job = store.scan("jobs", start=f"turn:{self.conversation.id}", limit=1)
        if waiting:
            assert job, "an unfinished event without its job"
            assert "due" in job[0].value, "an unfinished event whose job is done"

    @invariant()
    def nothing_is_done_before_it_was_allowed(self) -> None:
        items = with_prefix(self.world.store, f"transcript:{self.conversation.id}", "")
        allowed: list[str] = []
        for item in items:
            allowed += item.value.get("allowed", [])
            text = "".join(part.get("text", "") for part in item.value["message"]["parts"])
            if text.startswith("answer to e") and asks(number_of(text.removeprefix("answer to "))):
                assert f"t{number_of(text.removeprefix('answer to '))}" in allowed
        assert len(allowed) == len(set(allowed)), "allowed twice"

    def assert_answered_once_in_order(self, last: Process) -> None:
        entries = list(last.conversations.transcript(self.conversation).entries())
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        came = [entry.event_id for entry in entries if entry.event_id is not None]
        in_order = [f"e{e}" for e in sorted(self.accepted, key=self.accepted.__getitem__)]
        assert came == in_order
        answers = [entry.message.text for entry in entries if entry.message.text]
        paused = last.conversations.queue(self.conversation).paused()
        for event in self.accepted:
            claim = last.inbox.claims.find(last.inbox.claim_key(AGENT, f"e{event}"))
            assert claim is not None
            told = last.inbox.began(self.conversation, claim).outcome
            assert told is not None
            of = event % ANSWERS
            count = answers.count(f"answer to e{of}")
            assert count == (1 if told["status"] == "done" else 0)
            is_paused = paused is not None and paused.event.id == f"e{of}"
            assert (told["status"] == "waiting") == is_paused
            if told["status"] == "done" and asks(of):
                assert ANSWERS + of in self.accepted
        left = with_prefix(self.world.store, f"inbox:{self.conversation.id}", "0")
        assert len(left) == (1 if paused is not None else 0)


def test_a_call_runs_once_and_only_after_its_approval_despite_every_fault() -> None:
    run_state_machine_as_test(Asking, settings=BOUNDED)


class Forgetful(EventQueue):
    """Lets a turn wait without noting that it does."""

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
        head = replace(self._conversations.queue(conversation).head(), running=None)
        if ending.status == "waiting":
            self._complete(conversation, lease, (), head, number=None, also=also)
        else:
            super().end(conversation, running, ending, lease, is_last=is_last, also=also)


class Deaf(EventQueue):
    """Takes an answer and leaves the turn as it was, waiting."""

    def answering(
        self,
        conversation: Conversation,
        waiting: NextEvent,
        paused: PausedTurn,
        rest: Ending | None,
    ) -> tuple[RunningTurn | None, tuple[RecordChange, ...]]:
        running, changes = super().answering(conversation, waiting, paused, rest)
        return running, tuple(one for one in changes if not _is_head(one))


class Twofold(EventQueue):
    """Ends a turn that waits without taking it away."""

    def abandoning(
        self, conversation: Conversation, paused: PausedTurn, ending: Ending
    ) -> tuple[RecordChange, ...]:
        changes = super().abandoning(conversation, paused, ending)
        return tuple(one for one in changes if not _is_head(one))


def _is_head(change: Any) -> bool:
    return change.key.sort == "head"


@pytest.mark.parametrize("mutant", [Forgetful, Deaf, Twofold])
def test_the_state_machine_detects_a_faulty_event_queue(mutant: type[EventQueue]) -> None:
    class Mutated(Asking):
        inbox_as = mutant

    with pytest.raises((AssertionError, NotFound)):
        run_state_machine_as_test(Mutated, settings=UNSHRUNK)
