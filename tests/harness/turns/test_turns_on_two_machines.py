"""Turns on two machines that share only a DynamoDB table and a bucket."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.messages.event import Approval, Event
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.models.scripted import ScriptedModel
from harness.turns.dispatcher import Dispatcher
from tests.dynamodb_server import REGION, dynamodb, dynamodb_url, make_table
from tests.harness.talk import (
    Rule,
    assert_in_order,
    conversation_of,
    delivered,
    entries_of,
    ingress_of,
    opened,
)
from tests.harness.turns.test_dispatcher import accept, begin, run, status
from tests.servers import BUCKET, S3Server
from workspaces.clock import ManualClock
from workspaces.coordination.lease import TERMS, Lease
from workspaces.errors import Busy, LeaseLost, Refused
from workspaces.home.locations import bucket_at
from workspaces.home.unreachable import SET_PLACE
from workspaces.ids import TurnId, new_id
from workspaces.sync.history_head import parse_head

__all__ = ["dynamodb", "dynamodb_url"]

EVENTS_EACH = 6
NOTE = ToolCall("t1", "write", {"path": "notes/tea.md", "content": "green"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rooms(
    home: Path,
    dynamodb: str,
    seaweedfs: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    clock: ManualClock,
) -> PrincipalServices:
    """Shared records go with shared files."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, REGION if name.endswith("REGION") else value)
    monkeypatch.setenv("HARNESS_S3", f"s3://{BUCKET}/{new_id('test')}")
    table = f"talk-{home.parent.name}"[:60].replace("[", "-").replace("]", "-")
    make_table(dynamodb, table)
    monkeypatch.setenv("HARNESS_RECORDS", f"dynamodb:{table}")
    return opened(home, Rule(), clock)


def machine(rooms: PrincipalServices, name: str) -> Dispatcher:
    return ingress_of(rooms, process=f"{name}:pid:[1]/1/1")


def with_dispatcher(rooms: PrincipalServices, dispatcher: Dispatcher) -> PrincipalServices:
    """The same services, whose events another machine's dispatcher receives."""
    machine = copy(rooms)
    vars(machine)["dispatcher"] = dispatcher
    return machine


def test_two_machines_answer_every_event_once_in_order(rooms: PrincipalServices) -> None:
    machines = {name: machine(rooms, name) for name in ("red", "blue")}

    async def talk() -> list[str]:
        texts = [(name, f"{name}-{n}") for n in range(EVENTS_EACH) for name in machines]
        deliveries = (delivered(machines[name], text, "c1", text) for name, text in texts)
        return [outcome.reply for outcome in await asyncio.gather(*deliveries)]

    replies = run(talk())
    assert sorted(replies) == sorted(
        f"answer to {name}-{n}" for name in machines for n in range(EVENTS_EACH)
    )
    events = assert_in_order(rooms, "c1")
    said = [entry.message.text for entry in entries_of(rooms, "c1")]
    assert said[1::2] == [f"answer to {event}" for event in events]
    assert [one for one in rooms.jobs.list() if one.job.kind == "turn"] == []


def test_a_vanished_machine_loses_its_lease_after_the_lease_time_and_writes_nothing_later(
    rooms: PrincipalServices, clock: ManualClock
) -> None:
    gone, here = machine(rooms, "gone"), machine(rooms, "here")
    lost = with_dispatcher(rooms, gone)
    accepted = accept(lost, "one")
    assert accepted.lease is not None
    begin(lost, accepted.lease)
    conversation = conversation_of(rooms, "c1")
    with pytest.raises(Busy):
        run(here.look_after(conversation.id))
    clock.advance(TERMS.lease_s - 1)
    with pytest.raises(Busy):
        run(here.look_after(conversation.id))
    clock.advance(1)
    run(here.look_after(conversation.id))
    assert status(rooms, "one").outcome.reply == "answer to one"
    before = entries_of(rooms, "c1")
    late = replace(before[-1], number=3, turn_id=TurnId("turn_late"))
    with pytest.raises(LeaseLost):
        rooms.conversations.transcript(conversation).append(late, accepted.lease)
    assert entries_of(rooms, "c1") == before


def test_a_machine_that_lost_the_lease_does_not_push_its_changes(
    rooms: PrincipalServices, clock: ManualClock
) -> None:
    """A model keeps it waiting, others take over meanwhile, and then the model fails."""
    gone, here = machine(rooms, "gone"), machine(rooms, "here")
    conversation = rooms.conversations.open(rooms.agents.get("assistant").id, "c1")
    taken: list[Lease] = []

    def takes_long(request: ModelRequest) -> ModelFailure:
        with pytest.raises(Busy):
            here.leases.acquire(conversation.lease_key)
        clock.advance(TERMS.lease_s)
        taken.append(here.leases.acquire(conversation.lease_key))
        return ModelFailure("unreachable", "no network", "check it")

    model = ScriptedModel([NOTE], takes_long, "noted")
    gone, here = (replace(one, open_model=lambda *_: model) for one in (gone, here))
    accepted = accept(with_dispatcher(rooms, gone), "one")
    gone.leases.release(accepted.lease)
    with pytest.raises(LeaseLost):
        run(gone.look_after(conversation.id))
    notes = rooms.workspaces.get("notes")
    assert (notes.root / "notes/tea.md").exists()
    assert tip_there(rooms) != notes.history.tip()
    here.leases.release(taken[0])
    run(here.look_after(conversation.id))
    assert status(rooms, "one").outcome.reply == "noted"
    assert tip_there(rooms) == notes.history.tip()


def tip_there(rooms: PrincipalServices) -> str | None:
    head = bucket_at(rooms.settings.s3 or "").history(rooms.workspaces.get("notes").namespace)
    return parse_head(head.read("head.json").data).tip


def test_a_text_too_large_for_a_record_is_readable_on_every_machine(
    rooms: PrincipalServices, tmp_path: Path
) -> None:
    elsewhere = opened(tmp_path / "elsewhere", Rule())
    text = f"{'very long ' * 20_000}indeed"
    agent = rooms.agents.get("assistant")
    accepted = run(rooms.dispatcher.enqueue(agent, Event.said("e1", "c1", text)))
    rooms.dispatcher.leases.release(accepted.lease)
    outcome = run(elsewhere.dispatcher.run(agent, Event.said("e1", "c1", text)))
    assert outcome.reply == f"answer to {text}"
    assert [entry.message.text for entry in entries_of(rooms, "c1")] == [text, outcome.reply]
    rooms.conversations.delete(conversation_of(rooms, "c1"))
    assert list(bucket_at(rooms.settings.s3 or "").entries().scan()) == []


def test_shared_records_without_an_s3_location_are_refused(
    rooms: PrincipalServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_S3")
    with pytest.raises(Refused, match="s3: must be set: the records are shared") as caught:
        opened(tmp_path / "elsewhere", Rule())
    assert caught.value.remedy == SET_PLACE


def test_a_call_pending_on_the_first_machine_can_be_approved_on_the_second(
    rooms: PrincipalServices, clock: ManualClock
) -> None:
    """Every transition is one batch on a store that many machines write to."""
    rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    model = Rule(writes=True)
    red, blue = (
        replace(machine(rooms, name), open_model=lambda *_: model) for name in ("red", "blue")
    )
    agent = rooms.agents.get("assistant")
    waiting = run(red.run(agent, Event.said("e1", "c1", "one")))
    assert waiting.status == "waiting"
    for call in waiting.pending:
        allowed = Approval(call_id=call.id, is_allowed=True)
        outcome = run(blue.run(agent, Event(f"allow-{call.id}", "c1", (allowed,))))
    assert (outcome.status, outcome.reply) == ("done", "answer to one")
    assert run(red.run(agent, Event.said("e1", "c1", "one"))) == outcome
    clock.advance(TERMS.lease_s)
    assert assert_in_order(rooms, "c1") == ["e1", *(f"allow-{one.id}" for one in waiting.pending)]
    assert [one for one in rooms.jobs.list() if one.job.kind == "turn"] == []
