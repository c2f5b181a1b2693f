from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.conversations.conversation import Conversations
from harness.conversations.event_queue import EventQueue
from harness.jobs.job import ATTEMPTS_MAX, PAUSE_S_MAX
from harness.jobs.runner import AWAY_PAUSE_S, Drained
from harness.messages.event import Event
from harness.messages.message import Message, Text, ToolCall, ToolResult
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.transcripts.transcript import Transcript
from tests.machines import Flaky
from workspaces.accounts.account import Person
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists, Busy, LeaseLost, NotFound, Refused, Unavailable
from workspaces.ids import UserId
from workspaces.storage.blobs import Stat
from workspaces.storage.faulty import FaultyRecords, StoreFault
from workspaces.storage.records import Item, Key, RecordStore
from workspaces.tree.directory import FileBlobs

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

READ = ToolCall("t1", "read", {"path": "MEMORY.md"})


def texts(harness: Harness, key: str) -> list[str]:
    found = harness.conversation(key)
    return [entry.message.text for entry in harness.conversations.transcript(found).entries()]


def of_another_user(harness: Harness) -> tuple[Conversations, EventQueue]:
    """The rooms of somebody else in the same account, who knows ids and keys."""
    rooms, own = harness.rooms, harness.rooms.principal
    other = replace(own, user=Person(UserId("usr_other"), "other"))
    ingress, large = rooms.dispatcher, rooms.conversations._large
    conversations = Conversations(
        other, rooms.records, large, rooms.clock, leases=ingress.leases, jobs=rooms.jobs
    )
    return conversations, EventQueue(conversations)


# whose it is


def test_a_conversation_of_another_user_is_not_found(scripted: Scripted) -> None:
    harness, _ = scripted("hello")
    harness.run("my secret", conversation="c1", event_id="e1")
    mine = harness.conversation("c1")
    theirs, inbox = of_another_user(harness)
    assert theirs.find(mine.agent_id, "c1") is None
    assert theirs.list() == []
    with pytest.raises(NotFound) as hidden:
        theirs.get(mine.id)
    with pytest.raises(NotFound) as absent:
        theirs.get(mine.id.replace(mine.id[-1], "x"))
    assert type(hidden.value) is type(absent.value)
    accepted = inbox.accept(mine.agent_id, Event.said("e2", "c1", "let me in"), rejects=False)
    assert accepted.conversation.id != mine.id
    assert theirs.transcript(accepted.conversation).newest() is None


def test_claims_of_the_same_event_id_differ_between_users(scripted: Scripted) -> None:
    harness, _ = scripted("hello")
    harness.run("my secret", conversation="c1", event_id="e1")
    _, inbox = of_another_user(harness)
    agent = harness.agents.get("assistant")
    accepted = inbox.accept(agent.id, Event.said("e1", "theirs", "my secret"), rejects=False)
    assert accepted.conversation.user_id == "usr_other"
    claim = inbox.claims.find(accepted.claim)
    assert claim is not None
    assert claim.outcome is None


def test_conversations_are_listed_newest_first_and_by_agent(scripted: Scripted) -> None:
    harness, _ = scripted("one", "two", "three")
    other = harness.agents.create("other")
    harness.run("hello", conversation="c1")
    harness.run("hello", conversation="c2", agent=other)
    harness.run("hello", conversation="c3")
    assert [one.key for one in harness.conversations.list()] == ["c3", "c2", "c1"]
    assert [one.key for one in harness.conversations.list(other.id)] == ["c2"]


@pytest.mark.parametrize("key", ["user:42", "conv_1", "Ünïcode key", "x" * 200])
def test_a_conversation_is_found_by_its_key_and_by_its_id(scripted: Scripted, key: str) -> None:
    harness, _ = scripted("hello")
    outcome = harness.run("hi", conversation=key)
    assert harness.conversation(key).id == outcome.conversation_id
    assert harness.conversation(outcome.conversation_id).key == key
    with pytest.raises(NotFound):
        harness.conversation(key[:-1] + "?")


# sessions


def test_a_reset_removes_earlier_messages_from_the_context_and_not_from_the_transcript(
    scripted: Scripted,
) -> None:
    harness, model = scripted("one", "two")
    harness.run("first", conversation="c1")
    session = harness.conversations.reset(harness.conversation("c1"))
    assert session.first == 3
    harness.run("second", conversation="c1")
    assert [message.text for message in model.requests[1].messages] == ["second"]
    assert texts(harness, "c1") == ["first", "one", "second", "two"]


def test_repeated_resets_start_a_single_new_session(scripted: Scripted) -> None:
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    found = harness.conversation("c1")
    again = [harness.conversations.reset(found) for _ in range(3)]
    assert len({session.id for session in again}) == 1
    assert len(harness.conversations.transcript(found).sessions()) == 2


def test_a_file_read_before_a_reset_must_be_read_again_before_a_write(scripted: Scripted) -> None:
    write = ToolCall("t2", "write", {"path": "MEMORY.md", "content": "mine\n"})
    harness, model = scripted([READ], "read", [write], "written")
    harness.run("read it", conversation="c1")
    harness.conversations.reset(harness.conversation("c1"))
    harness.run("write it", conversation="c1")
    result = model.requests[-1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert "was not read" in result.text


def test_a_reset_is_refused_while_the_lease_is_held(scripted: Scripted) -> None:
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    found = harness.conversation("c1")
    with harness.rooms.dispatcher.leases.held(found.lease_key), pytest.raises(Busy):
        harness.conversations.reset(found)


class Counting:
    """A wire that tells which items were read."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.items: list[Item] = []

    def scan(self, partition: str, **how: Any) -> list[Item]:
        found = self._store.scan(partition, **how)
        self.items += found
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_transcript_window_loads_no_entries_from_before_the_session(scripted: Scripted) -> None:
    harness, _ = scripted(*["answer"] * 30)
    for number in range(25):
        harness.run(f"old {number}", conversation="c1")
    found = harness.conversation("c1")
    harness.conversations.reset(found)
    harness.run("new", conversation="c1")
    counting = Counting(harness.rooms.records)
    window = Transcript(found.id, counting, harness.conversations._large).window()
    assert [entry.message.text for entry in window.entries] == ["new", "answer"]
    assert len(counting.items) == 3


# forks


def test_a_fork_at_an_entry_copies_the_entries_up_to_that_entry(scripted: Scripted) -> None:
    harness, model = scripted("one", "two", "other")
    harness.run("first", conversation="c1")
    harness.conversations.reset(harness.conversation("c1"))
    harness.run("second", conversation="c1")
    fork = harness.fork_conversation(harness.conversation("c1"), "c2", at=3)
    assert fork.forked_from == f"{harness.conversation('c1').id} 3"
    harness.run("instead", conversation="c2")
    assert texts(harness, "c2") == ["first", "one", "second", "instead", "other"]
    assert [m.text for m in model.requests[-1].messages] == ["second\n\ninstead"]
    assert texts(harness, "c1") == ["first", "one", "second", "two"]


@pytest.mark.parametrize(("at", "shown"), [(None, ["second"]), (2, ["first", "one", "second"])])
def test_a_full_fork_keeps_the_reset_and_a_fork_at_an_earlier_entry_undoes_the_reset(
    scripted: Scripted, at: int | None, shown: list[str]
) -> None:
    harness, model = scripted("one", "two")
    harness.run("first", conversation="c1")
    harness.conversations.reset(harness.conversation("c1"))
    harness.fork_conversation(harness.conversation("c1"), "c2", at=at)
    harness.run("second", conversation="c2")
    assert [message.text for message in model.requests[-1].messages] == shown
    assert texts(harness, "c2") == ["first", "one", "second", "two"]


def test_a_fork_keeps_its_large_entries_after_its_original_is_deleted(scripted: Scripted) -> None:
    harness, _ = scripted("one")
    harness.run("ä" * 100_000, conversation="c1")
    harness.fork_conversation(harness.conversation("c1"), "c2")
    harness.conversations.delete(harness.conversation("c1"))
    assert texts(harness, "c2") == ["ä" * 100_000, "one"]


@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_fork_at_an_entry_that_does_not_exist_is_refused(scripted: Scripted, at: int) -> None:
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    with pytest.raises(Refused) as caught:
        harness.fork_conversation(harness.conversation("c1"), "c2", at=at)
    assert caught.value.field == "at"


def test_a_fork_under_an_existing_key_is_refused_and_writes_no_record(scripted: Scripted) -> None:
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    principal = harness.rooms.principal
    keys = f"conversation-keys:{principal.account_id}:{principal.user_id}"
    before = harness.rooms.records.scan(keys)
    assert len(before) == 1
    with pytest.raises(AlreadyExists):
        harness.fork_conversation(harness.conversation("c1"), "c1")
    assert harness.rooms.records.scan(keys) == before


# carried elsewhere


def test_an_imported_conversation_equals_its_export(scripted: Scripted, tmp_path: Any) -> None:
    harness, _ = scripted([Text("Let me look."), READ], "here", "more", "on it goes")
    harness.run("what do you know?", conversation="c1")
    harness.conversations.reset(harness.conversation("c1"))
    harness.run("ü" * 70_000, conversation="c1")
    lines = list(harness.export_conversation(harness.conversation("c1")))
    with Harness.open(tmp_path / "elsewhere", model=ScriptedModel("on it goes")) as elsewhere:
        made = elsewhere.import_conversation(lines)
        assert made.key == "c1"
        again = list(elsewhere.export_conversation(made))
        assert without_ids(again) == without_ids(lines)
        elsewhere.run("go on", conversation="c1")
        assert texts(elsewhere, "c1")[-2:] == ["go on", "on it goes"]


def test_forks_and_imports_keep_tool_results_too_long_for_a_request(
    scripted: Scripted, tmp_path: Any
) -> None:
    harness, _ = scripted([READ], "one", [replace(READ, id="t2")], "two")
    harness.run("first", conversation="c1")
    harness.run("second", conversation="c1")
    original = harness.conversation("c1")
    whole = {"t1": "ä\u2028" * 100_000, "t2": "of the second turn"}
    for call_id, text in whole.items():
        harness.rooms.dispatcher.results(original.id).keep(call_id, text)
    lines = list(harness.export_conversation(original))
    fork = harness.fork_conversation(original, "c2", at=4)
    harness.conversations.delete(original)
    results = harness.rooms.dispatcher.results(fork.id)
    assert results.read("t1") == whole["t1"]
    with pytest.raises(NotFound):
        results.read("t2")
    harness.conversations.delete(fork)
    assert list(harness.conversations._large.scan("")) == []
    with Harness.open(tmp_path / "elsewhere") as elsewhere:
        made = elsewhere.import_conversation(lines)
        results = elsewhere.rooms.dispatcher.results(made.id)
        assert {call_id: results.read(call_id) for call_id in whole} == whole
        assert without_ids(list(elsewhere.export_conversation(made))) == without_ids(lines)


def without_ids(lines: list[str]) -> list[Any]:
    objects = [json.loads(line) for line in lines]
    for one in objects:
        one.pop("conversation", None)
        one.get("session", {}).pop("id", None)
    return objects


def broken(lines: list[str], number: int, change: Callable[[dict[str, Any]], object]) -> list[str]:
    data = json.loads(lines[number])
    change(data)
    return [*lines[:number], json.dumps(data), *lines[number + 1 :]]


SAID_AT = "2026-01-01T00:00:00.000000Z"


def entered(lines: list[str], number: int, **change: object) -> list[str]:
    """With something else in the line of an entry."""
    return broken(lines, number, lambda data: data.update(change))


def opened(lines: list[str], **change: object) -> list[str]:
    """With something else in the line of the session."""
    return broken(lines, 1, lambda data: data["session"].update(change))


def begun(lines: list[str], **session: object) -> list[str]:
    """With one session more."""
    line = {"session": {"id": "s", "startedAt": SAID_AT, **session}}
    return [*lines[:2], json.dumps(line), *lines[2:]]


def summarised(lines: list[str], **change: object) -> list[str]:
    """With a summary of the first two entries behind them."""
    message = {"role": "assistant", "parts": [{"type": "text", "text": "so far"}]}
    summary = {"entry": 5, "at": SAID_AT, "turn": "t", "message": message}
    line = json.dumps({**summary, "kind": "summary", "covers": 2, **change})
    return [*opened(lines, windowFrom=3, summary=5), line]


Damage = Callable[[list[str]], list[str]]

DAMAGE: list[tuple[str, Damage]] = [
    ("line 1", lambda lines: []),
    ("line 1.conversation", lambda lines: broken(lines, 0, lambda d: d.pop("conversation"))),
    ("line 1.format", lambda lines: entered(lines, 0, format=2)),
    ("line 2", lambda lines: [lines[0], *lines[2:]]),
    ("line 2.session.first", lambda lines: opened(lines, first=2)),
    ("line 2.session.startedAt", lambda lines: opened(lines, startedAt="today")),
    ("line 2.session.windowFrom", lambda lines: opened(lines, windowFrom=3)),
    ("line 2.session.windowFrom", lambda lines: opened(lines, windowFrom=50)),
    ("line 3.session.windowFrom", lambda lines: begun(lines, first=3, windowFrom=2)),
    ("line 3.entry", lambda lines: [*lines[:2], *lines[3:]]),
    ("line 3.at", lambda lines: entered(lines, 2, at="now")),
    ("line 3.message.role", lambda lines: entered(lines, 2, message={"role": "system"})),
    (
        "line 3.message.parts",
        lambda lines: entered(lines, 2, message={"role": "user", "parts": []}),
    ),
    ("line 3.message.parts.0.text", lambda lines: parted(lines, {"type": "text", "text": 1})),
    ("line 3.message.parts.0.type", lambda lines: parted(lines, {"type": "", "text": "x"})),
    ("line 3", lambda lines: parted(lines, {"type": "text", "text": "\ud83d"})),
    ("line 3", lambda lines: entered(lines, 2, at=float("inf"))),
    ("line 3.more", lambda lines: entered(lines, 2, more=1)),
    ("line 4", lambda lines: [*lines[:3], "{", *lines[4:]]),
    ("line 4.usage.input", lambda lines: broken(lines, 3, lambda d: d["usage"].update(input=-1))),
    ("line 5", lambda lines: opened(lines, windowFrom=3, summary=3)),
    ("line 7", lambda lines: summarised(lines, covers=1)),
    ("line 7", lambda lines: summarised(lines, covers=999)),
    ("line 7", lambda lines: summarised(lines, kind="said")),
    ("line 7", lambda lines: summarised(lines, message={"role": "user", "parts": [TELEPATHY]})),
    ("session", lambda lines: opened(lines, windowFrom=3, summary=77)),
    ("session", lambda lines: begun(lines, first=9)),
]
TELEPATHY = {"type": "telepathy"}


def parted(lines: list[str], part: object) -> list[str]:
    return entered(lines, 2, message={"role": "user", "parts": [part]})


@pytest.mark.parametrize(("field", "damage"), DAMAGE)
def test_a_damaged_export_is_refused_with_its_line_number_and_writes_no_record(
    scripted: Scripted, field: str, damage: Damage
) -> None:
    harness, _ = scripted("one", "two")
    harness.run("first", conversation="c1")
    harness.run("second", conversation="c1")
    lines = list(harness.export_conversation(harness.conversation("c1")))
    harness.import_conversation(summarised(lines), key="sound")
    before = everything(harness)
    with pytest.raises(Refused) as caught:
        harness.import_conversation(damage(lines), key="c2")
    assert caught.value.field == field
    assert everything(harness) == before


def everything(harness: Harness) -> set[tuple[str, str]]:
    import sqlite3

    with sqlite3.connect(harness.settings.home.state) as connection:
        return set(connection.execute("select partition, sort from item"))


# deletion


def test_deleting_a_conversation_deletes_its_entries_events_claims_jobs_and_large_values(
    scripted: Scripted,
) -> None:
    harness, _ = scripted("one", "two", "again")
    harness.run("a secret " + "x" * 70_000, conversation="c1", event_id="e1")
    harness.run("another secret", conversation="c1", event_id="e2")
    found = harness.conversation("c1")
    agent = harness.agents.get("assistant")
    waiting = Event.said("e3", "c1", "a secret that waits " + "y" * 70_000)
    with harness.rooms.dispatcher.leases.held(found.lease_key):
        harness.rooms.dispatcher.event_queue.accept(agent.id, waiting, rejects=False)
    gone = harness.conversations.delete(found)
    assert (gone.entries, gone.sessions, gone.waiting) == (4, 1, 1)
    with pytest.raises(NotFound):
        harness.conversation("c1")
    assert left_of(harness, found.id) == []
    assert list(harness.conversations._large.scan("")) == []
    for event_id in ("e1", "e2", "e3"):
        with pytest.raises(NotFound):
            harness.rooms.dispatcher.status(agent.id, event_id)
    assert harness.jobs.list() == []
    harness.run("new", conversation="c1")
    assert texts(harness, "c1") == ["new", "again"]


def left_of(harness: Harness, conversation_id: str) -> list[tuple[str, str]]:
    """Marks of jobs that are done say only that they are."""
    return [
        (partition, sort)
        for partition, sort in everything(harness)
        if conversation_id in partition + sort and not partition.startswith("jobs")
    ]


def test_deleting_a_fork_keeps_the_claims_of_its_original(scripted: Scripted) -> None:
    harness, model = scripted("one", "never")
    first = harness.run("hello", conversation="c1", event_id="e1")
    harness.conversations.delete(harness.fork_conversation(harness.conversation("c1"), "c2"))
    assert harness.run("hello", conversation="c1", event_id="e1") == first
    assert len(model.requests) == 1


def test_a_deletion_is_refused_while_the_lease_is_held(scripted: Scripted) -> None:
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    found = harness.conversation("c1")
    with harness.rooms.dispatcher.leases.held(found.lease_key), pytest.raises(Busy):
        harness.conversations.delete(found)
    assert texts(harness, "c1") == ["first", "one"]


def test_a_deletion_interrupted_at_any_call_is_completed_by_its_job(scripted: Scripted) -> None:
    harness, _ = scripted(*["answer"] * 100)
    interrupted = 0
    for calls in range(40):
        key = f"c{calls}"
        harness.run("first", conversation=key)
        harness.run("x" * 70_000, conversation=key)
        found = harness.conversation(key)
        try:
            cut_off(harness, calls).delete(found)
        except Unavailable:
            interrupted += 1
        try:
            assert texts(harness, key)[0] == "first", "either it is there, or it is gone"
        except NotFound:
            harness.run_jobs()
            assert left_of(harness, found.id) == []
            assert list(harness.conversations._large.scan(f"{found.id}/")) == []
            assert [one for one in harness.jobs.list() if found.id in one.job.id] == []
        if interrupted == calls:
            break
    assert interrupted >= 10


def test_a_deletion_succeeds_if_its_job_runs_at_any_moment_during_the_deletion(
    scripted: Scripted,
) -> None:
    harness, _ = scripted(*["answer"] * 100)
    ran = 0
    for calls in range(40):
        key = f"c{calls}"
        harness.run("first", conversation=key)
        found = harness.conversation(key)
        before = ran

        def meanwhile(calls: int = calls) -> Iterator[StoreFault]:
            nonlocal ran
            yield from [StoreFault.NONE] * calls
            ran += 1
            harness.run_jobs()
            yield from [StoreFault.NONE] * 1000

        assert on_a_wire(harness, meanwhile()).delete(found).entries == 2
        assert left_of(harness, found.id) == []
        assert harness.jobs.list() == []
        if ran == before:
            break
    assert 10 <= ran < 40


def test_a_deletion_job_retries_without_limit_while_the_large_value_store_is_unavailable(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was promised: it is not given up after so many tries."""
    clock, is_away = ManualClock(), False
    scan = FileBlobs.scan

    def scanned(blobs: FileBlobs, prefix: str = "") -> Iterator[Stat]:
        if is_away:
            raise Unavailable("entries", "nothing answers")
        return scan(blobs, prefix)

    monkeypatch.setattr(FileBlobs, "scan", scanned)
    model = ScriptedModel("one")
    with Harness.open(home, model=model, sandbox=NoSandbox("not here"), clock=clock) as harness:
        harness.run("a secret " + "x" * 70_000, conversation="c1")
        found = harness.conversation("c1")
        is_away = True
        with pytest.raises(Unavailable):
            harness.conversations.delete(found)
        for _ in range(ATTEMPTS_MAX + 1):
            clock.advance(PAUSE_S_MAX)
            assert harness.run_jobs() == Drained(0, 1)
        is_away = False
        clock.advance(AWAY_PAUSE_S)
        assert harness.run_jobs() == Drained(1, 0)
        assert left_of(harness, found.id) == []
        assert list(harness.conversations._large.scan(f"{found.id}/")) == []


def cut_off(harness: Harness, calls: int) -> Conversations:
    """On a wire that breaks after so many messages, for good."""
    return on_a_wire(harness, iter([*[StoreFault.NONE] * calls, *[StoreFault.BEFORE] * 1000]))


def on_a_wire(harness: Harness, plan: Iterator[StoreFault]) -> Conversations:
    rooms = harness.rooms
    return Conversations(
        rooms.principal,
        FaultyRecords(rooms.records, plan),
        rooms.conversations._large,
        rooms.clock,
        leases=rooms.dispatcher.leases,
        jobs=rooms.jobs,
    )


def test_deleting_an_agent_deletes_its_conversations(scripted: Scripted) -> None:
    harness, _ = scripted("one", "two")
    harness.agents.create("helper")
    harness.run("hello", conversation="c1", agent="helper")
    harness.run("hello", conversation="c1")
    assert harness.deletion.agent("helper").conversations == 1
    assert [one.key for one in harness.conversations.list()] == ["c1"]
    assert texts(harness, "c1") == ["hello", "two"]


# fencing


def test_a_stale_lease_holder_cannot_replace_a_large_entry(scripted: Scripted) -> None:
    """Its bytes go to a name of their own; only the record that names them is fenced."""
    harness, _ = scripted("one")
    harness.run("first", conversation="c1")
    found = harness.conversation("c1")
    transcript = harness.conversations.transcript(found)
    leases = harness.rooms.dispatcher.leases
    stale = leases.acquire(found.lease_key)
    leases.release(stale)
    fresh = leases.acquire(found.lease_key)
    entry = next(iter(transcript.entries(1, 1)))
    large = {name: Message("user", (Text(name * 70_000),)) for name in ("f", "s")}
    numbered = [type(entry)(3, entry.at, entry.turn_id, large[name]) for name in ("f", "s")]
    transcript.append(numbered[0], fresh)
    with pytest.raises(LeaseLost):
        transcript.append(numbered[1], stale)
    assert texts(harness, "c1")[2] == "f" * 70_000


def test_the_flaky_world_of_the_state_machines_gives_each_process_its_own_clock() -> None:
    world = Flaky("a", "b")
    world.advance(5)
    assert (world.clocks["b"].now() - world.clocks["a"].now()).total_seconds() == 40
    world.lose_next("a", StoreFault.BEFORE, 1)
    assert world.wires["a"].get(Key("p", "s")) is None
    with pytest.raises(Exception, match="planned fault"):
        world.wires["a"].get(Key("p", "s"))
