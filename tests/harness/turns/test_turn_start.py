"""The first batch of a turn: event, lease and first entry are written together, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.turn_start import TurnStart
from harness.messages.event import Event
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelRequest
from harness.models.scripted import ScriptedModel
from harness.transcripts.transcript import Entry
from tests.harness.talk import (
    Rule,
    assert_in_order,
    conversation_of,
    delivered,
    entries_of,
    ingress_of,
    log_of,
    opened,
)
from workspaces.accounts.account import Accounts
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, LeaseLost, Unavailable
from workspaces.ids import TurnId
from workspaces.storage.records import Counter, Key, Put, RecordChange, RecordStore
from workspaces.storage.sqlite import SqliteRecords
from workspaces.timestamp import stamp_of

WAIT_S = 60.0


@pytest.fixture
def rooms(home: Path) -> Iterator[PrincipalServices]:
    rooms = opened(home, Rule())
    yield rooms
    rooms.records.close()


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await coroutine

    return asyncio.run(bounded())


def receive(rooms: PrincipalServices, event_id: str) -> TurnStart:
    agent = rooms.agents.get("assistant")
    event = Event.said(event_id, "c1", event_id)
    found = rooms.dispatcher.event_queue.start(agent.id, event)
    assert found is not None
    return found


def write(rooms: PrincipalServices, start: TurnStart, number: int) -> None:
    at, event = stamp_of(rooms.clock.now()), start.event
    entry = Entry(number, at, TurnId("turn_1"), event.message, event.id)
    start.write(log_of(rooms.conversations, start), entry)


def claim_of(rooms: PrincipalServices, start: TurnStart) -> Key:
    return rooms.dispatcher.event_queue.claim_key(start.conversation.agent_id, start.event.id)


class Listening:
    """A wire to the records that remembers each batch, and stops before one on request."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.batches: list[tuple[RecordChange, ...]] = []
        self.waits = threading.Event()
        self.go: threading.Event | None = None

    def get(self, key: Any) -> Any:
        return self._store.get(key)

    def scan(self, partition: str, **how: Any) -> Any:
        return self._store.scan(partition, **how)

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        self.batches.append(changes)
        if self.go is not None and _is_first_entry(changes):
            self.waits.set()
            assert self.go.wait(WAIT_S)
        return self._store.write(*changes)

    def close(self) -> None:
        self._store.close()


def _is_first_entry(changes: tuple[RecordChange, ...]) -> bool:
    partitions = {change.key.partition.partition(":")[0] for change in changes}
    return {"transcript", "claims", "inbox", "conversation-lease", "jobs"} <= partitions


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_a_single_batch_accepts_the_event_takes_the_lease_and_stores_the_first_entry(
    rooms: PrincipalServices, is_known: bool
) -> None:
    before = ["before"] if is_known else []
    for text in before:
        run(delivered(rooms.dispatcher, text, "c1", text))
    wire = Listening(rooms.records)
    run(delivered(ingress_of(rooms, records=wire), "one", "c1", "one"))
    assert _is_first_entry(wire.batches[0])
    assert assert_in_order(rooms, "c1") == [*before, "one"]
    assert rooms.jobs.list() == []
    assert [one.key for one in rooms.conversations.list()] == ["c1"]


def test_the_batch_that_ends_a_turn_releases_its_lease(rooms: PrincipalServices) -> None:
    wire = Listening(rooms.records)
    run(delivered(ingress_of(rooms, records=wire), "one", "c1", "one"))
    lease_key = conversation_of(rooms, "c1").lease_key
    fences = [
        change.value["holder"] is None
        for batch in wire.batches
        for change in batch
        if isinstance(change, Put) and change.key == Key(lease_key, "fence")
    ]
    assert fences == [False, True]
    (ending,) = [
        batch
        for batch in wire.batches
        if any(isinstance(change, Put) and "outcome" in change.value for change in batch)
    ]
    assert Key(lease_key, "fence") in {change.key for change in ending}
    assert wire.batches[-1] is ending, "something was written after the end"


def test_the_slot_of_a_turn_is_released_before_its_lease(rooms: PrincipalServices) -> None:
    """Or whoever is next in line would be refused for a turn that has ended."""
    account_id = rooms.principal.account_id
    limits = {"config": {"limits": {"runningTurns": 1}}}
    Accounts(rooms.records, rooms.clock).patch(account_id, limits)
    taken: list[int] = []

    class Looking(Listening):
        def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
            taken.append(len(rooms.records.scan(f"allowance:{account_id}", start="slot:")))
            return super().write(*changes)

    run(delivered(ingress_of(rooms, records=Looking(rooms.records)), "one", "c1", "one"))
    assert taken[-1] == 0
    assert taken[-2] == 1


def test_a_lease_holder_releases_the_lease_although_events_are_queued(
    rooms: PrincipalServices,
) -> None:
    run(delivered(rooms.dispatcher, "before", "c1", "before"))
    agent = rooms.agents.get("assistant")
    theirs = ingress_of(rooms)

    def meanwhile(_: object) -> str:
        theirs.event_queue.accept(agent.id, Event.said("two", "c1", "two"), rejects=False)
        return "answer to one"

    ingress = replace(ingress_of(rooms), open_model=lambda *_: ScriptedModel(meanwhile))
    run(delivered(ingress, "one", "c1", "one"))
    theirs.leases.release(theirs.leases.acquire(conversation_of(rooms, "c1").lease_key))
    assert rooms.dispatcher.status(agent.id, "two").state == "queued"
    assert len(rooms.jobs.list()) == 1


def test_a_turn_prepared_before_a_reset_does_not_start_after_the_reset(
    rooms: PrincipalServices,
) -> None:
    run(delivered(rooms.dispatcher, "before", "c1", "before"))
    start = receive(rooms, "one")
    rooms.conversations.reset(start.conversation)
    with pytest.raises((Conflict, LeaseLost)):
        write(rooms, start, 3)
    assert len(entries_of(rooms, "c1")) == 2
    assert rooms.dispatcher.event_queue.claims.find(claim_of(rooms, start)) is None


def test_a_turn_prepared_before_a_deletion_does_not_start_after_the_deletion(
    rooms: PrincipalServices,
) -> None:
    run(delivered(rooms.dispatcher, "before", "c1", "before"))
    start = receive(rooms, "one")
    rooms.conversations.delete(start.conversation)
    with pytest.raises((Conflict, LeaseLost)):
        write(rooms, start, 3)


def test_of_two_turns_prepared_for_the_same_conversation_a_single_turn_starts(
    rooms: PrincipalServices,
) -> None:
    run(delivered(rooms.dispatcher, "before", "c1", "before"))
    one, two = receive(rooms, "one"), receive(rooms, "two")
    write(rooms, two, 3)
    with pytest.raises((Conflict, LeaseLost)):
        write(rooms, one, 3)
    assert rooms.dispatcher.event_queue.claims.find(claim_of(rooms, one)) is None


def test_the_loser_of_a_race_to_create_a_conversation_leaves_no_records(
    rooms: PrincipalServices,
) -> None:
    one, two = receive(rooms, "one"), receive(rooms, "two")
    assert one.conversation.id != two.conversation.id
    write(rooms, two, 1)
    before = everything(rooms)
    rooms.conversations._large.write(f"{one.conversation.id}/x.json", b"x", expect=ABSENT)
    with pytest.raises((Conflict, LeaseLost)):
        write(rooms, one, 1)
    rooms.dispatcher.event_queue.lost(one)
    assert everything(rooms) == before
    assert list(rooms.conversations._large.scan("")) == []
    assert conversation_of(rooms, "c1").id == two.conversation.id


def everything(rooms: PrincipalServices) -> set[tuple[str, str]]:
    """The keys of all records."""
    with sqlite3.connect(rooms.settings.home.root / "state.db") as database:
        return set(database.execute("select partition, sort from item"))


def test_an_event_that_loses_the_race_to_create_a_conversation_is_queued(
    rooms: PrincipalServices,
) -> None:
    theirs = ingress_of(rooms)

    def meanwhile() -> None:
        asyncio.run(delivered(theirs, "two", "c1", "two"))

    ingress = replace(ingress_of(rooms), open_model=interrupting(rooms, meanwhile))
    assert run(delivered(ingress, "one", "c1", "one")).reply == "answer to one"
    assert assert_in_order(rooms, "c1") == ["two", "one"]
    assert [one.key for one in rooms.conversations.list()] == ["c1"]


def test_cancelling_a_caller_during_preparation_writes_nothing_and_frees_the_slot(
    rooms: PrincipalServices,
) -> None:
    accounts, limits = Accounts(rooms.records, rooms.clock), {"runningTurns": 1}
    accounts.patch(rooms.principal.account_id, {"config": {"limits": limits}})
    waits, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        waits.set()
        assert go_on.wait(WAIT_S)

    ingress = replace(ingress_of(rooms), open_model=interrupting(rooms, hang))

    async def go() -> None:
        task = asyncio.create_task(delivered(ingress, "one", "c1", "one"))
        assert await asyncio.to_thread(waits.wait, WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = everything(rooms)
        go_on.set()
        while rooms.records.scan(slots, start="slot:"):  # noqa: ASYNC110 - a thread gives it back
            await asyncio.sleep(0.01)
        assert {key for key in everything(rooms) if key[0] != slots} == {
            key for key in before if key[0] != slots
        }

    slots = f"allowance:{rooms.principal.account_id}"
    run(go())
    assert rooms.conversations.list() == []
    assert run(delivered(rooms.dispatcher, "two", "c1", "two")).reply == "answer to two"


def interrupting(rooms: PrincipalServices, call: Any) -> Any:
    """Opens the agent's model, and does something else before it does so for the first time."""
    calls = iter([call])

    def open_model(*_: object) -> Any:
        next(calls, lambda: None)()
        return Rule()

    return open_model


def test_an_event_accepted_while_another_turn_is_prepared_runs_first(
    rooms: PrincipalServices,
) -> None:
    accounts, only_one = Accounts(rooms.records, rooms.clock), {"runningTurns": 1}
    accounts.patch(rooms.principal.account_id, {"config": {"limits": only_one}})
    agent = rooms.agents.get("assistant")
    theirs = ingress_of(rooms)

    def meanwhile() -> None:
        accepted = theirs.event_queue.accept(
            agent.id, Event.said("two", "c1", "two"), rejects=False
        )
        assert accepted.lease is not None
        theirs.leases.release(accepted.lease)

    ingress = replace(ingress_of(rooms), open_model=interrupting(rooms, meanwhile))
    assert run(delivered(ingress, "one", "c1", "one")).reply == "answer to one"
    assert assert_in_order(rooms, "c1") == ["two", "one"]


def test_an_event_sent_twice_while_its_turn_is_prepared_starts_a_single_turn(
    rooms: PrincipalServices,
) -> None:
    theirs = ingress_of(rooms)

    def meanwhile() -> None:
        asyncio.run(delivered(theirs, "one", "c1", "one"))

    ingress = replace(ingress_of(rooms), open_model=interrupting(rooms, meanwhile))
    assert run(delivered(ingress, "one", "c1", "one")).reply == "answer to one"
    assert assert_in_order(rooms, "c1") == ["one"]


def test_concurrent_events_in_the_same_process_are_queued_in_order_of_arrival(
    rooms: PrincipalServices,
) -> None:
    texts = [f"e{number}" for number in range(12)]

    async def all_at_once() -> None:
        await asyncio.gather(*(delivered(rooms.dispatcher, text, "c1", text) for text in texts))

    run(all_at_once())
    assert assert_in_order(rooms, "c1") == texts


def test_cancelling_a_caller_during_the_first_batch_interrupts_the_turn(
    rooms: PrincipalServices,
) -> None:
    run(delivered(rooms.dispatcher, "before", "c1", "before"))
    wire, model = Listening(rooms.records), ScriptedModel()
    wire.go = threading.Event()
    ingress = replace(ingress_of(rooms, records=wire), open_model=lambda *_: model)

    async def go() -> None:
        task = asyncio.create_task(delivered(ingress, "one", "c1", "one"))
        assert await asyncio.to_thread(wire.waits.wait, WAIT_S)
        task.cancel()
        await asyncio.sleep(0)
        assert wire.go is not None
        wire.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(go())
    agent = rooms.agents.get("assistant")
    assert rooms.dispatcher.status(agent.id, "one").outcome.status == "interrupted"  # type: ignore[union-attr]
    assert rooms.jobs.list() == []
    assert model.requests == []
    assert run(delivered(rooms.dispatcher, "two", "c1", "two")).reply == "answer to two"


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_an_event_whose_preparation_failed_may_be_sent_again_with_another_body(
    rooms: PrincipalServices, is_known: bool
) -> None:
    def broken(*_: object) -> Any:
        raise Unavailable("model", "no such thing")

    if is_known:
        run(delivered(rooms.dispatcher, "before", "c1", "before"))
    ingress = replace(rooms.dispatcher, open_model=broken)
    with pytest.raises(Unavailable):
        run(delivered(ingress, "one", "c1", "one"))
    agent = rooms.agents.get("assistant")
    assert rooms.dispatcher.status(agent.id, "one").state == "refused"
    conversation = conversation_of(rooms, "c1")
    assert not rooms.dispatcher.conversations.is_in_use(conversation)
    assert run(delivered(rooms.dispatcher, "one", "c1", "one, again")).status == "done"


@pytest.mark.parametrize("key", ["c1", "c2"], ids=["known", "new"])
def test_a_turn_writes_a_single_batch_before_the_model_call(
    scripted: Callable[..., tuple[Harness, ScriptedModel]],
    monkeypatch: pytest.MonkeyPatch,
    key: str,
) -> None:
    written: list[list[str]] = []
    asked: list[int] = []
    write = SqliteRecords.write

    def noting(records: SqliteRecords, *changes: RecordChange) -> tuple[int, ...]:
        written.append([change.key.partition.partition(":")[0] for change in changes])
        return write(records, *changes)

    def look(request: ModelRequest) -> str:
        del request
        asked.append(len(written))
        return "two"

    harness, _ = scripted("one", look)
    harness.run("first", conversation="c1")
    monkeypatch.setattr(SqliteRecords, "write", noting)
    harness.run("second", conversation=key)
    assert asked == [1]
    assert {"conversation-lease", "transcript", "shown", "inbox"} <= set(written[0])


def test_a_turn_writes_a_batch_per_request_and_per_reply_and_a_last_batch_at_its_end(
    scripted: Callable[..., tuple[Harness, ScriptedModel]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply is stored with the note of what it has used up."""
    written: list[set[str]] = []
    write = SqliteRecords.write

    def noting(records: SqliteRecords, *changes: RecordChange) -> tuple[int, ...]:
        written.append({change.key.partition.partition(":")[0] for change in changes})
        return write(records, *changes)

    call = ToolCall("t1", "read", {"path": "MEMORY.md"})
    harness, _ = scripted("one", [call], "done")
    harness.run("first", conversation="c1")
    monkeypatch.setattr(SqliteRecords, "write", noting)
    harness.run("second", conversation="c1")
    asked, replied, kept, answered, ended = written
    assert {"transcript", "shown"} <= asked & kept
    assert replied == answered == {"conversation-lease", "transcript", "usage"}
    assert "claims" in ended
    assert harness.rooms.usage.report().total.asked == 3


@pytest.mark.parametrize(
    ("call", "batches"),
    [
        (ToolCall("t1", "read", {"path": "MEMORY.md"}), [{"transcript", "shown"}]),
        (
            ToolCall("t1", "write", {"path": "a.md", "content": "x"}),
            [{"transcript"}, {"shown"}],
        ),
    ],
    ids=["read", "written"],
)
def test_read_results_are_stored_with_the_next_request_and_write_results_before(
    scripted: Callable[..., tuple[Harness, ScriptedModel]],
    monkeypatch: pytest.MonkeyPatch,
    call: ToolCall,
    batches: list[set[str]],
) -> None:
    written: list[set[str]] = []
    write = SqliteRecords.write

    def noting(records: SqliteRecords, *changes: RecordChange) -> tuple[int, ...]:
        partitions = {change.key.partition.partition(":")[0] for change in changes}
        written.append(partitions & {"transcript", "shown"})
        return write(records, *changes)

    def look(request: ModelRequest) -> str:
        del request
        found.extend(one for one in written if one)
        return "done"

    found: list[set[str]] = []
    harness, _ = scripted("one", [call], look)
    harness.run("first", conversation="c1")
    monkeypatch.setattr(SqliteRecords, "write", noting)
    harness.run("second", conversation="c1")
    assert found[2:] == batches  # after the opening and the reply
