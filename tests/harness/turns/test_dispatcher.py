"""The dispatcher in one process: queueing, refusing, withdrawing, cancelling and resuming events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.context.repair import INTERRUPTED
from harness.conversations.event_status import GivenBack
from harness.conversations.queue_state import WAITING_BYTES_MAX, WAITING_MAX, NextEvent
from harness.conversations.turn_start import start_of
from harness.learning.learning_jobs import LEARN
from harness.messages.event import Event, ToolAnswer
from harness.messages.message import Message, Text, ToolCall, ToolResult, user
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Progress, Queued
from harness.models.scripted import ScriptedModel, ScriptedReply
from harness.transcripts.outcome import Outcome
from harness.transcripts.transcript import Entry
from harness.turns.dispatcher import Dispatcher
from harness.turns.turn_runner import ATTEMPTS_MAX
from tests.harness.talk import (
    Rule,
    assert_in_order,
    conversation_of,
    entries_of,
    ingress_of,
    log_of,
    opened,
    runner_of,
)
from workspaces.coordination.lease import Lease
from workspaces.errors import Busy, NotFound, TooMany, Unavailable
from workspaces.ids import TurnId
from workspaces.storage.faulty import FaultyRecords, StoreFault
from workspaces.storage.records import BATCH_CHANGES_MAX
from workspaces.timestamp import stamp_of

WAIT_S = 60.0
LOST_AT_MAX = 30
"""A delivery without tools takes fewer messages."""


@pytest.fixture
def rooms(home: Path) -> Iterator[PrincipalServices]:
    rooms = opened(home, Rule())
    yield rooms
    rooms.records.close()


def say(rooms: PrincipalServices, text: str, event_id: str | None = None, **how: Any) -> Event:
    return Event.said(event_id or text, "c1", text, **how)


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await coroutine

    return asyncio.run(bounded())


def deliver(
    rooms: PrincipalServices, text: str, event_id: str | None = None, **how: Any
) -> Outcome:
    agent = rooms.agents.get("assistant")
    return run(rooms.dispatcher.run(agent, say(rooms, text, event_id, **how)))


def answered_by(rooms: PrincipalServices, model: Any) -> Dispatcher:
    return replace(rooms.dispatcher, open_model=lambda *_: model)


class Gate:
    """A model that waits until it is let go on."""

    name = "gate"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = False

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Any) -> Reply:
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        said = request.messages[-1].text.split("\n\n")[-1]
        return Reply(Message("assistant", (Text(f"answer to {said}"),)), Usage(1, 1))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - told by a callback that knows no loop
        await asyncio.sleep(0.01)


# in line


def test_a_queued_event_reports_the_number_of_earlier_events(rooms: PrincipalServices) -> None:
    async def talk() -> list[Progress]:
        gate, told = Gate(), []
        ingress = answered_by(rooms, gate)
        agent = rooms.agents.get("assistant")
        first = asyncio.create_task(ingress.run(agent, say(rooms, "one")))
        await gate.asked.wait()
        second = asyncio.create_task(ingress.run(agent, say(rooms, "two"), told.append))
        await until(lambda: bool(told))
        gate.go.set()
        replies = [(await first).reply, (await second).reply]
        assert replies == ["answer to one", "answer to two"]
        return told

    assert run(talk()) == [Queued(1)]
    assert assert_in_order(rooms, "c1") == ["one", "two"]


def test_the_end_of_a_turn_wakes_waiting_callers_in_the_same_process_without_polling(
    rooms: PrincipalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not look in between."""
    monkeypatch.setattr("harness.turns.dispatcher.LOOK_S_MIN", 2 * WAIT_S)
    monkeypatch.setattr("harness.turns.dispatcher.LOOK_S_MAX", 2 * WAIT_S)

    async def talk() -> list[str]:
        gate, told = Gate(), []
        ingress = answered_by(rooms, gate)
        agent = rooms.agents.get("assistant")
        first = asyncio.create_task(ingress.run(agent, say(rooms, "one")))
        await gate.asked.wait()
        second = asyncio.create_task(ingress.run(agent, say(rooms, "two"), told.append))
        await until(lambda: bool(told))
        third = asyncio.create_task(ingress.run(agent, say(rooms, "three"), told.append))
        await until(lambda: len(told) == 2)
        gate.go.set()
        return [(await one).reply for one in (first, second, third)]

    assert run(talk()) == ["answer to one", "answer to two", "answer to three"]


def test_an_agent_that_rejects_when_busy_refuses_a_second_event(rooms: PrincipalServices) -> None:
    async def talk() -> None:
        gate = Gate()
        ingress = answered_by(rooms, gate)
        agent = rooms.agents.patch("assistant", {"config": {"onBusy": "reject"}})
        first = asyncio.create_task(ingress.run(agent, say(rooms, "one")))
        await gate.asked.wait()
        with pytest.raises(Busy):
            await ingress.run(agent, say(rooms, "two"))
        queued = asyncio.create_task(ingress.run(agent, say(rooms, "three", on_busy="queue")))
        gate.go.set()
        assert (await first).reply == "answer to one"
        assert (await queued).reply == "answer to three"
        assert (await ingress.run(agent, say(rooms, "two"))).reply == "answer to two"

    run(talk())


def occupied(rooms: PrincipalServices) -> Lease:
    """Somebody else runs a turn in `c1`."""
    deliver(rooms, "before")
    lease = rooms.dispatcher.leases.acquire(conversation_of(rooms, "c1").lease_key)
    accept(rooms, "running")
    begin(rooms, lease)
    return lease


def accept(rooms: PrincipalServices, text: str, event_id: str | None = None) -> Any:
    agent = rooms.agents.get("assistant")
    event = say(rooms, text, event_id)
    return rooms.dispatcher.event_queue.accept(agent.id, event, rejects=False)


def begin(rooms: PrincipalServices, lease: Lease, *more: Message) -> None:
    """As a process does that dies after it has stored so much."""
    inbox, conversation = rooms.dispatcher.event_queue, conversation_of(rooms, "c1")
    waiting = inbox.next(conversation, lease)
    assert isinstance(waiting, NextEvent)
    transcript = rooms.conversations.transcript(conversation)
    first, turn_id = transcript.window().next_number, TurnId("turn_dead")
    at = stamp_of(rooms.clock.now())
    said = Entry(first, at, turn_id, user(waiting.event.message.text), waiting.event.id)
    start = start_of(conversation, waiting, lease)
    start.write(log_of(rooms.conversations, start), said)
    for number, message in enumerate(more, start=first + 1):
        transcript.append(Entry(number, at, turn_id, message), lease)


def test_the_event_queue_holds_at_most_a_hundred_events(rooms: PrincipalServices) -> None:
    occupied(rooms)
    for number in range(WAITING_MAX):
        accept(rooms, f"e{number}")
    with pytest.raises(TooMany) as caught:
        accept(rooms, "one more")
    assert (caught.value.maximum, caught.value.unit) == (WAITING_MAX, "events")
    assert caught.value.remedy
    with pytest.raises(NotFound):
        status(rooms, "one more")


def test_the_event_queue_holds_at_most_a_mebibyte_of_text(rooms: PrincipalServices) -> None:
    occupied(rooms)
    accept(rooms, "ä" * (WAITING_BYTES_MAX // 2), "full")
    with pytest.raises(TooMany) as caught:
        accept(rooms, "x")
    assert (caught.value.actual, caught.value.unit) == (WAITING_BYTES_MAX + 1, "bytes")


def test_an_event_for_an_idle_conversation_may_exceed_the_queue_limit(
    rooms: PrincipalServices,
) -> None:
    text = "x" * (2 * WAITING_BYTES_MAX)
    assert deliver(rooms, text, "large").status == "done"
    assert entries_of(rooms, "c1")[0].message.text == text
    assert list(rooms.conversations._large.scan("conv_")) != []


def test_withdrawn_events_free_their_places_in_the_event_queue(rooms: PrincipalServices) -> None:
    occupied(rooms)
    places = [accept(rooms, f"e{number}") for number in range(WAITING_MAX)]
    for place in places:
        assert rooms.dispatcher.event_queue.withdraw(place)
    rooms.dispatcher.leases.release(lease_of(rooms))
    assert deliver(rooms, "after").reply == "answer to after"
    assert [entry.event_id for entry in entries_of(rooms, "c1") if entry.event_id] == [
        "before",
        "running",
        "after",
    ]


def lease_of(rooms: PrincipalServices) -> Lease:
    key = conversation_of(rooms, "c1").lease_key
    fence = rooms.records.scan(key, limit=1)[0]
    return Lease(key, fence.counter)


# once


def status(rooms: PrincipalServices, event_id: str) -> Any:
    return rooms.dispatcher.status(rooms.agents.get("assistant").id, event_id)


def test_the_same_event_delivered_concurrently_starts_a_single_turn(
    rooms: PrincipalServices,
) -> None:
    async def talk() -> list[Outcome]:
        agent = rooms.agents.get("assistant")
        deliveries = (rooms.dispatcher.run(agent, say(rooms, "one")) for _ in range(5))
        return await asyncio.gather(*deliveries)

    outcomes = run(talk())
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(entries_of(rooms, "c1")) == 2


def test_the_status_of_an_event_is_queued_running_or_done(rooms: PrincipalServices) -> None:
    lease = occupied(rooms)
    accept(rooms, "waits")
    assert status(rooms, "before").state == "done"
    assert status(rooms, "before").outcome.reply == "answer to before"
    assert status(rooms, "running").state == "running"
    assert status(rooms, "waits").state == "queued"
    with pytest.raises(NotFound):
        status(rooms, "never")
    rooms.dispatcher.leases.release(lease)
    deliver(rooms, "waits")
    assert status(rooms, "running").state == "done"
    assert status(rooms, "waits").state == "done"


def test_an_event_that_fails_before_the_model_call_is_refused_and_may_be_sent_again(
    rooms: PrincipalServices,
) -> None:
    def broken(*_: object) -> Any:
        raise Unavailable("model", "no such thing")

    ingress = replace(rooms.dispatcher, open_model=broken)
    agent = rooms.agents.get("assistant")
    with pytest.raises(Unavailable):
        run(ingress.run(agent, say(rooms, "one", "e1")))
    found = status(rooms, "e1")
    assert (found.state, found.refusal["code"]) == ("refused", "unavailable")
    assert entries_of(rooms, "c1") == []
    assert rooms.jobs.list() == []
    assert deliver(rooms, "another body now", "e1").status == "done"


def test_a_bug_before_the_model_call_does_not_block_the_event_queue(
    rooms: PrincipalServices,
) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError

    ingress = replace(rooms.dispatcher, open_model=broken)
    agent = rooms.agents.get("assistant")
    with pytest.raises(ZeroDivisionError):
        run(ingress.run(agent, say(rooms, "one")))
    assert "ZeroDivisionError" in status(rooms, "one").refusal["message"]
    assert deliver(rooms, "two").status == "done"


def test_a_caller_receives_the_reason_when_another_process_gives_back_its_event(
    rooms: PrincipalServices,
) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accepted = accept(rooms, "one")
    inbox, conversation = rooms.dispatcher.event_queue, accepted.conversation
    waiting = inbox.next(conversation, lease)
    assert isinstance(waiting, NextEvent)
    inbox.give_back(conversation, waiting, NotFound("agent", "x"), lease)
    with pytest.raises(GivenBack) as caught:
        run(rooms.dispatcher.wait(accepted))
    assert (caught.value.code, str(caught.value)) == ("not_found", "there is no agent 'x'")


def conversation_of_new(rooms: PrincipalServices) -> Any:
    return rooms.conversations.open(rooms.agents.get("assistant").id, "c1")


def test_a_bug_during_a_turn_fails_the_turn_and_the_next_event_runs(
    rooms: PrincipalServices,
) -> None:
    def broken(*_: object) -> ScriptedReply:
        raise ZeroDivisionError("by nothing")

    ingress = answered_by(rooms, ScriptedModel(broken))
    agent = rooms.agents.get("assistant")
    with pytest.raises(ZeroDivisionError):
        run(ingress.run(agent, say(rooms, "one")))
    found = status(rooms, "one")
    assert found.state == "failed"
    assert found.outcome.failure.reason == "ZeroDivisionError: by nothing"
    assert deliver(rooms, "two").status == "done"


# cancelled


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelling_the_caller_interrupts_its_turn(rooms: PrincipalServices) -> None:
    async def talk() -> None:
        gate = Gate()
        agent = rooms.agents.get("assistant")
        task = asyncio.create_task(answered_by(rooms, gate).run(agent, say(rooms, "one")))
        await gate.asked.wait()
        await cancelled(task)
        assert gate.cancelled

    run(talk())
    assert status(rooms, "one").outcome.status == "interrupted"
    assert rooms.jobs.list() == []
    assert deliver(rooms, "two").reply == "answer to two"


def test_a_queued_event_is_withdrawn_when_its_caller_is_cancelled(rooms: PrincipalServices) -> None:
    async def talk() -> None:
        gate = Gate()
        ingress = answered_by(rooms, gate)
        agent = rooms.agents.get("assistant")
        first = asyncio.create_task(ingress.run(agent, say(rooms, "one")))
        await gate.asked.wait()
        told: list[Progress] = []
        second = asyncio.create_task(ingress.run(agent, say(rooms, "two"), told.append))
        await until(lambda: bool(told))
        await cancelled(second)
        gate.go.set()
        assert (await first).reply == "answer to one"

    run(talk())
    assert status(rooms, "two").state == "refused"
    assert [entry.message.text for entry in entries_of(rooms, "c1")] == ["one", "answer to one"]
    assert deliver(rooms, "two").reply == "answer to two"


def test_a_caller_cancelled_while_running_another_callers_event_leaves_that_event_running(
    rooms: PrincipalServices,
) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "theirs")
    rooms.dispatcher.leases.release(lease)

    async def talk() -> None:
        gate = Gate()
        agent = rooms.agents.get("assistant")
        task = asyncio.create_task(answered_by(rooms, gate).run(agent, say(rooms, "mine")))
        await gate.asked.wait()
        await cancelled(task)

    run(talk())
    assert status(rooms, "theirs").state == "running"
    assert status(rooms, "mine").state == "refused"
    assert deliver(rooms, "theirs").reply == "answer to theirs"
    assert len(entries_of(rooms, "c1")) == 2


def test_cancelling_a_repeated_delivery_does_not_interrupt_the_turn(
    rooms: PrincipalServices,
) -> None:
    async def talk() -> None:
        gate = Gate()
        ingress = answered_by(rooms, gate)
        agent = rooms.agents.get("assistant")
        first = asyncio.create_task(ingress.run(agent, say(rooms, "one")))
        await gate.asked.wait()
        heard: list[Progress] = []
        waits = asyncio.create_task(ingress.run(agent, say(rooms, "two"), heard.append))
        await until(lambda: len(heard) == 1)  # it is in line, and what comes now is the same again
        told: list[Progress] = []
        again = [
            asyncio.create_task(ingress.run(agent, say(rooms, text), told.append))
            for text in ("one", "two")
        ]
        await until(lambda: len(told) == 2)
        for task in again:
            await cancelled(task)
        gate.go.set()
        assert (await first).reply == "answer to one"
        assert (await waits).reply == "answer to two"

    run(talk())


def test_accepting_an_event_for_an_idle_conversation_returns_the_lease_and_the_event(
    rooms: PrincipalServices,
) -> None:
    first, second = accept(rooms, "one"), accept(rooms, "two")
    assert first.first == rooms.dispatcher.event_queue.next(
        conversation_of(rooms, "c1"), first.lease
    )
    assert (second.lease, second.first) == (None, None)
    rooms.dispatcher.leases.release(first.lease)
    third = accept(rooms, "three")
    assert third.lease is not None
    assert third.first is None
    rooms.dispatcher.leases.release(third.lease)
    assert deliver(rooms, "four").reply == "answer to four"
    assert entries_of(rooms, "c1")[0].message.text == "one"


def test_a_message_after_a_deletion_elsewhere_starts_a_new_conversation(
    rooms: PrincipalServices,
) -> None:
    """Though this process remembers the one that was."""
    assert run(rooms.dispatcher.wait(accept(rooms, "one"))).reply == "answer to one"
    before = conversation_of(rooms, "c1")
    rooms.conversations.delete(before)
    answer = Event("e2", "c1", (ToolAnswer(call_id="t1", content="x"),))
    with pytest.raises(NotFound):
        rooms.dispatcher.event_queue.accept(before.agent_id, answer, rejects=False)
    assert run(rooms.dispatcher.wait(accept(rooms, "two"))).reply == "answer to two"
    assert conversation_of(rooms, "c1").id != before.id
    assert [entry.message.text for entry in entries_of(rooms, "c1")] == ["two", "answer to two"]


# interrupted


def test_the_next_event_resumes_a_turn_whose_process_died(rooms: PrincipalServices) -> None:
    lease = occupied(rooms)
    rooms.dispatcher.leases.release(lease)
    assert deliver(rooms, "next").reply == "answer to next"
    assert [entry.message.text for entry in entries_of(rooms, "c1")] == [
        "before",
        "answer to before",
        "running",
        "answer to running",
        "next",
        "answer to next",
    ]
    assert status(rooms, "running").outcome.reply == "answer to running"


CALLS = (ToolCall("t1", "read", {"path": "MEMORY.md"}), ToolCall("t2", "read", {"path": "x.md"}))


def test_tool_calls_that_may_have_run_are_reported_as_interrupted_and_not_run_again(
    rooms: PrincipalServices,
) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    known = Message("user", (ToolResult("t1", "it ran"),))
    begin(rooms, lease, Message("assistant", (Text("Let me look."), *CALLS)), known)
    rooms.dispatcher.leases.release(lease)
    model = ScriptedModel("I see.")
    outcome = run(answered_by(rooms, model).run(rooms.agents.get("assistant"), say(rooms, "one")))
    assert outcome.reply == "I see."
    (request,) = model.requests
    assert request.messages[-1].parts == (
        ToolResult("t1", "it ran"),
        ToolResult("t2", INTERRUPTED, is_error=True),
    )
    results = [e.message.parts[0] for e in entries_of(rooms, "c1")[2:4]]
    assert results == list(request.messages[-1].parts)


def test_more_interrupted_calls_than_a_batch_holds_do_not_block_the_turn(
    rooms: PrincipalServices,
) -> None:
    calls = tuple(replace(CALLS[0], id=f"t{number}") for number in range(BATCH_CHANGES_MAX + 1))
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    begin(rooms, lease, Message("assistant", calls))
    rooms.dispatcher.leases.release(lease)
    model = ScriptedModel("I see.")
    ingress = answered_by(rooms, model)
    outcome = run(ingress.run(rooms.agents.get("assistant"), say(rooms, "one")))
    assert (outcome.status, outcome.reply) == ("done", "I see.")
    interrupted = (ToolResult(call.id, INTERRUPTED, is_error=True) for call in calls)
    assert model.requests[0].messages[-1].parts == tuple(interrupted)


def test_a_resumed_turn_uses_the_stored_reply_instead_of_asking_the_model_again(
    rooms: PrincipalServices,
) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    begin(rooms, lease, Message("assistant", (Text("It is this."),)))
    rooms.dispatcher.leases.release(lease)
    model = ScriptedModel()
    outcome = run(answered_by(rooms, model).run(rooms.agents.get("assistant"), say(rooms, "one")))
    assert (outcome.status, outcome.reply, model.requests) == ("done", "It is this.", [])


def test_steps_before_an_interruption_count_towards_the_step_limit(
    rooms: PrincipalServices,
) -> None:
    rooms.agents.patch("assistant", {"config": {"limits": {"steps": 2}}})
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    result = Message("user", (ToolResult("t1", "it ran"),))
    begin(rooms, lease, Message("assistant", CALLS[:1]), result)
    rooms.dispatcher.leases.release(lease)
    model = ScriptedModel([CALLS[1]], "never")
    outcome = run(answered_by(rooms, model).run(rooms.agents.get("assistant"), say(rooms, "one")))
    assert (outcome.status, len(model.requests)) == ("out_of_steps", 1)


def test_a_turn_that_kills_three_processes_is_reported_as_failed(rooms: PrincipalServices) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    begin(rooms, lease)
    inbox, conversation = rooms.dispatcher.event_queue, conversation_of(rooms, "c1")
    for _ in range(ATTEMPTS_MAX - 1):
        found = inbox.next(conversation, lease)
        assert found is not None
        assert not isinstance(found, NextEvent)
        inbox.resume(conversation, found, lease)
    rooms.dispatcher.leases.release(lease)
    assert deliver(rooms, "two").reply == "answer to two"
    found = status(rooms, "one")
    assert found.state == "failed"
    assert "3 times" in found.outcome.failure.reason


def test_a_turn_of_a_deleted_agent_is_reported_as_failed(rooms: PrincipalServices) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    begin(rooms, lease)
    rooms.dispatcher.leases.release(lease)
    conversation = conversation_of(rooms, "c1")
    agent_id = conversation.agent_id
    rooms.agents.delete("assistant")
    run(rooms.dispatcher.look_after(conversation.id))
    assert rooms.dispatcher.status(agent_id, "one").state == "failed"


def test_a_job_completes_an_interrupted_turn_and_the_queued_events(
    rooms: PrincipalServices,
) -> None:
    lease = occupied(rooms)
    accept(rooms, "waits")
    (job,) = rooms.jobs.list()
    assert job.job.kind == "turn"
    rooms.jobs.retry(job.job.id)  # due now
    assert run(runner_of(rooms).drain()).failed == 1  # the holder is alive
    rooms.dispatcher.leases.release(lease)
    rooms.jobs.retry(job.job.id)
    assert run(runner_of(rooms).drain()).done == 1
    assert status(rooms, "running").state == "done"
    assert status(rooms, "waits").state == "done"
    assert rooms.jobs.list() == []


def test_lost_answers_of_the_record_store_lose_no_event(rooms: PrincipalServices) -> None:
    """Every message is lost once, before or after its effect; whoever sends again gets the answer."""
    coming: list[StoreFault] = []
    plan = iter(lambda: coming.pop(0) if coming else StoreFault.NONE, None)
    ingress = ingress_of(rooms, records=FaultyRecords(rooms.records, plan))
    agent, failed = rooms.agents.get("assistant"), 0
    for fault in (StoreFault.BEFORE, StoreFault.AFTER):
        for number in range(LOST_AT_MAX):
            coming[:] = [*[StoreFault.NONE] * number, fault]
            event = say(rooms, f"{fault.name}-{number}")
            try:
                outcome = run(ingress.run(agent, event))
            except Unavailable:
                failed += 1
                outcome = run(ingress.run(agent, event))
            assert outcome.status in {"done", "failed"}
    assert failed > LOST_AT_MAX / 2
    coming.clear()
    assert len(assert_in_order(rooms, "c1")) == 2 * LOST_AT_MAX
    assert run(runner_of(rooms).drain()).failed == 0
    assert {one.job.kind for one in rooms.jobs.list()} == {LEARN}  # what was said is read later
