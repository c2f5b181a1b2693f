"""Cancellation of turns: by a caller, from another process, or at a limit of time or money."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.context.repair import INTERRUPTED, repair
from harness.messages.event import Event
from harness.messages.message import Text, ToolCall, ToolResult
from harness.messages.progress import ToolStarted, silent
from harness.models.scripted import ScriptedModel
from harness.transcripts.outcome import Outcome
from harness.turns.dispatcher import Dispatcher
from tests.harness.talk import Rule, conversation_of, entries_of, ingress_of, opened, runner_of
from tests.harness.turns.test_dispatcher import (
    Gate,
    accept,
    answered_by,
    begin,
    conversation_of_new,
    run,
    say,
    status,
    until,
)
from tests.ordinary import reachable_directory
from workspaces.errors import Refused
from workspaces.storage.records import RecordChange, RecordStore

SONNET = "claude-sonnet-5"
READ = ToolCall("t1", "read", {"path": "MEMORY.md"})

Cancel = Callable[[], Awaitable[bool]]


@pytest.fixture
def rooms(home: Path) -> Iterator[PrincipalServices]:
    rooms = opened(home, Rule())
    yield rooms
    rooms.records.close()


def assert_intact(rooms: PrincipalServices) -> None:
    """What is stored needs no repair but the joining of neighbours."""
    messages = tuple(entry.message for entry in entries_of(rooms, "c1"))
    parts = [part for message in messages for part in message.parts]
    assert [part for message in repair(messages) for part in message.parts] == parts


async def stopped_at_the_model(rooms: PrincipalServices, by: Dispatcher) -> Outcome:
    gate = Gate()
    ingress = answered_by(rooms, gate)
    task = asyncio.create_task(ingress.run(rooms.agents.get("assistant"), say(rooms, "one")))
    await gate.asked.wait()
    assert await by.cancel(conversation_of(rooms, "c1"))
    outcome = await task
    assert gate.cancelled
    return outcome


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_a_cancelled_turn_is_interrupted_and_the_conversation_accepts_the_next_event(
    rooms: PrincipalServices, where: str
) -> None:
    other = replace(ingress_of(rooms, process="boot:other/1/1"), cancellations={})
    by = rooms.dispatcher if where == "here" else other
    outcome = run(stopped_at_the_model(rooms, by))
    assert (outcome.status, outcome.reply) == ("interrupted", "")
    assert rooms.jobs.list() == []
    assert_intact(rooms)
    again = run(rooms.dispatcher.run(rooms.agents.get("assistant"), say(rooms, "two")))
    assert again.reply == "answer to two"
    assert run(rooms.dispatcher.cancel(conversation_of(rooms, "c1"))) is False


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_a_turn_cancelled_before_its_start_is_interrupted_at_its_start(
    rooms: PrincipalServices, where: str
) -> None:
    other = replace(ingress_of(rooms, process="boot:other/1/1"), cancellations={})

    async def cancelled() -> Outcome:
        ingress = answered_by(rooms, Gate())
        accepted = await ingress.enqueue(rooms.agents.get("assistant"), say(rooms, "one"))
        by = ingress if where == "here" else other
        cancelling = asyncio.create_task(by.cancel(accepted.conversation))
        await asyncio.sleep(0)
        outcome = await ingress.wait(accepted)
        assert await cancelling
        return outcome

    assert run(cancelled()).status == "interrupted"
    assert_intact(rooms)


def test_a_cancellation_gives_up_waiting_for_a_turn_that_never_starts(
    rooms: PrincipalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.turns.dispatcher.BEGIN_S_MAX", 0.05)
    accept(rooms, "one")
    assert not run(rooms.dispatcher.cancel(conversation_of(rooms, "c1")))
    assert status(rooms, "one").state == "queued"


def test_the_next_lease_holder_interrupts_a_cancelled_turn_whose_process_died(
    rooms: PrincipalServices,
) -> None:
    lease = rooms.dispatcher.leases.acquire(conversation_of_new(rooms).lease_key)
    accept(rooms, "one")
    begin(rooms, lease)
    assert run(rooms.dispatcher.cancel(conversation_of(rooms, "c1")))
    rooms.dispatcher.leases.release(lease)

    async def follow() -> None:
        await answered_by(rooms, Gate()).look_after(conversation_of(rooms, "c1").id)

    run(follow())
    assert status(rooms, "one").outcome.status == "interrupted"
    assert run(runner_of(rooms).drain()).failed == 0


def test_a_cancelled_turn_that_waits_for_approval_ends_without_running_its_calls(
    home: Path,
) -> None:
    write = ToolCall("w1", "write", {"path": "a.md", "content": "x"})
    model = ScriptedModel([write], "Go on.")
    rooms = opened(home, model)
    rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    agent = rooms.agents.get("assistant")
    assert run(rooms.dispatcher.run(agent, say(rooms, "one"))).status == "waiting"
    assert run(rooms.dispatcher.cancel(conversation_of(rooms, "c1")))
    assert run(rooms.dispatcher.run(agent, say(rooms, "one"))).status == "interrupted"
    assert run(rooms.dispatcher.run(agent, say(rooms, "two"))).reply == "Go on."
    (result,) = [p for p in model.requests[1].messages[-1].parts if isinstance(p, ToolResult)]
    assert "ended the turn" in result.text
    assert_intact(rooms)
    rooms.records.close()


def test_cancelling_a_turn_kills_its_running_command(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = ToolCall("b1", "bash", {"command": "echo begun > begun.md; sleep 500", "timeout": 500})
    with reachable_directory() as place:
        model = ScriptedModel([sleep], "I see.")
        with Harness.open(place / "home", model=model) as harness:
            found = harness.confinement()
            if not found.works:
                pytest.skip(f"no sandbox on this machine: {found.detail}")
            ingress, agent = harness.rooms.dispatcher, harness.agents.get("assistant")
            begun = harness.workspaces.get("notes").root / "begun.md"

            async def talk() -> Outcome:
                task = asyncio.create_task(ingress.run(agent, Event.said("e1", "c1", "go")))
                await until(begun.exists)
                await ingress.cancel(conversation_of(harness.rooms, "c1"))
                return await task

            outcome = harness._loop.run(talk())
            assert outcome.status == "interrupted"
            assert harness.run("and?", conversation="c1").reply == "I see."
            (result,) = [
                p for p in model.requests[1].messages[-1].parts if isinstance(p, ToolResult)
            ]
            assert result == ToolResult("b1", INTERRUPTED, is_error=True)
            assert harness.workspaces.get("notes").read("begun.md").text == "begun\n"


def test_a_turn_out_of_time_ends_with_a_result_for_every_call(rooms: PrincipalServices) -> None:
    """It is up while the model is asked for the second time: then so much passes at once."""
    seconds = 20.0

    class Slow:
        name = "slow"

        async def reply(self, request: Any, *, output_tokens_max: int, emit: Any) -> Any:
            if request.messages[-1].text == "one":
                return await ScriptedModel([Text("So."), READ]).reply(
                    request, output_tokens_max=output_tokens_max, emit=silent
                )
            loop = asyncio.get_running_loop()
            time = loop.time
            loop.time = lambda: time() + seconds  # type: ignore[method-assign]
            return await asyncio.Event().wait()

    agent = rooms.agents.patch("assistant", {"config": {"limits": {"seconds": seconds}}})
    outcome = run(answered_by(rooms, Slow()).run(agent, say(rooms, "one")))
    assert outcome.status == "out_of_time"
    assert [entry.message.role for entry in entries_of(rooms, "c1")] == [
        "user",
        "assistant",
        "user",
    ]
    assert_intact(rooms)


def test_a_reply_being_stored_when_its_turn_is_cancelled_is_stored_with_its_usage(
    rooms: PrincipalServices,
) -> None:
    wire = Interrupting(rooms.records)
    ingress = ingress_of(rooms, records=wire)

    async def cancelled() -> None:
        task = asyncio.create_task(ingress.run(rooms.agents.get("assistant"), say(rooms, "one")))
        wire.interrupts(task, lambda: len(ingress.cancellations))
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    assert wire.running == [1], "nobody went on before it was stored"
    assert [entry.message.text for entry in entries_of(rooms, "c1")] == ["one", "answer to one"]
    assert rooms.usage.report().total.asked == 1


class Interrupting:
    """A wire to the records by which a turn is cancelled in the moment in which its reply is stored."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.running: list[int] = []
        """How many turns ran on when the loop had had all the time it wanted."""

    def interrupts(self, task: asyncio.Task[Any], running: Callable[[], int]) -> None:
        loop = asyncio.get_running_loop()

        async def interrupt() -> None:
            task.cancel()
            for _ in range(100):
                await asyncio.sleep(0)
            self.running.append(running())

        self._interrupt = lambda: asyncio.run_coroutine_threadsafe(interrupt(), loop).result(60.0)

    def get(self, key: Any) -> Any:
        return self._store.get(key)

    def scan(self, partition: str, **how: Any) -> Any:
        return self._store.scan(partition, **how)

    def write(self, *changes: RecordChange) -> tuple[int, ...]:
        if any(change.key.partition.startswith("usage:") for change in changes):
            self._interrupt()
        return self._store.write(*changes)

    def close(self) -> None:
        self._store.close()


def test_a_tool_call_running_when_time_is_up_gets_an_interrupted_result(
    rooms: PrincipalServices,
) -> None:
    agent = rooms.agents.patch("assistant", {"config": {"limits": {"seconds": 600}}})

    def never(progress: Any) -> None:
        if isinstance(progress, ToolStarted):
            raise asyncio.CancelledError  # as it is when the time is up just here

    ingress = answered_by(rooms, ScriptedModel([READ]))
    with pytest.raises(asyncio.CancelledError):
        run(ingress.run(agent, say(rooms, "one"), never))
    results = entries_of(rooms, "c1")[-1].message.parts
    assert results == (ToolResult("t1", INTERRUPTED, is_error=True),)
    assert_intact(rooms)


def test_a_turn_stops_at_its_dollar_limit(rooms: PrincipalServices) -> None:
    limits = {"dollars": 0.001}
    agent = rooms.agents.patch("assistant", {"config": {"limits": limits}})
    long = "x" * 200  # an output token each, for the scripted model: 10 dollars a million
    model = ScriptedModel(*[[Text(long), READ]] * 50, name=SONNET)
    outcome = run(answered_by(rooms, model).run(agent, say(rooms, "one")))
    assert outcome.status == "out_of_money"
    assert 1 <= len(model.requests) < 50
    assert_intact(rooms)


def test_a_dollar_limit_is_refused_for_a_model_without_a_price(rooms: PrincipalServices) -> None:
    agent = rooms.agents.patch("assistant", {"config": {"limits": {"dollars": 1.0}}})
    ingress = answered_by(rooms, ScriptedModel("never", name="nobody-knows"))
    with pytest.raises(Refused, match="no price"):
        run(ingress.run(agent, say(rooms, "one")))
    outcome = run(
        answered_by(rooms, ScriptedModel("hi", name=SONNET)).run(agent, say(rooms, "one"))
    )
    assert outcome.reply == "hi"


def test_a_cancellation_during_the_model_call_prevents_waiting_for_approval(home: Path) -> None:
    rooms: list[PrincipalServices] = []

    def cancelled_meanwhile(request: Any) -> list[ToolCall]:
        elsewhere = ingress_of(rooms[0], process="boot:other/1/1")
        assert elsewhere.event_queue.cancel(conversation_of(rooms[0], "c1"))
        return [ToolCall("w1", "write", {"path": "a.md", "content": "x"})]

    rooms.append(opened(home, ScriptedModel(cancelled_meanwhile)))
    rooms[0].sandboxes.patch("default", {"config": {"permission": "ask"}})
    agent = rooms[0].agents.get("assistant")
    assert run(rooms[0].dispatcher.run(agent, say(rooms[0], "one"))).status == "interrupted"
    assert rooms[0].conversations.pending(conversation_of(rooms[0], "c1")) == ()
    (result,) = entries_of(rooms[0], "c1")[-1].message.parts
    assert isinstance(result, ToolResult)
    assert "Nothing was changed" in result.text
    assert_intact(rooms[0])
    rooms[0].records.close()
