"""What a conversation costs: coming in, going on after a long past, lying on the disk.

Beside it, where they are installed (`pip install .[bench]`), two stores that others keep conversations in:
SQLiteSession of the OpenAI Agents SDK, and SqliteSaver of LangGraph, which keeps a checkpoint of the whole
state at each step.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ratio import compare, report
from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.event_queue import EventQueue
from harness.conversations.export import exported
from harness.conversations.queue_state import NextEvent
from harness.conversations.turn_start import TurnStart, start_of
from harness.jobs.job import Jobs
from harness.messages.event import Event
from harness.messages.message import Message, Text, user
from harness.prompts.turn_log import TurnLog
from harness.transcripts.outcome import Ending
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Carried, Entry, Transcript
from workspaces.accounts.account import Person, Principal
from workspaces.clock import SystemClock
from workspaces.coordination.lease import Lease, Leases
from workspaces.ids import AccountId, AgentId, TurnId, UserId, new_id
from workspaces.storage.sqlite import SqliteRecords
from workspaces.timestamp import stamp_of
from workspaces.tree.directory import FileBlobs

ROUNDS = 400
OLD, SESSION = 99_900, 100
KEPT = 10_000
PEER_ENTRIES = 300
TEXT = "a line of a transcript, as long as they usually are. " * 10
AGENT = AgentId("agent_000000000000000000000000")
CLOCK = SystemClock()


@dataclass(frozen=True)
class Place:
    records: SqliteRecords
    leases: Leases
    conversations: Conversations
    inbox: EventQueue

    def transcript(self, conversation: Conversation) -> Transcript:
        return self.conversations.transcript(conversation)

    def log(self, start: TurnStart) -> TurnLog:
        conversation = start.conversation
        prompt_log = self.conversations.prompt_log(conversation)
        return TurnLog(self.transcript(conversation), prompt_log, start.right)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:  # a real disk: /tmp may be memory
        directory = Path(name)
        _coming_in(directory)
        _going_on(directory)
        _on_disk(directory)
        _beside(directory)


def _coming_in(directory: Path) -> None:
    """An event until its first entry is stored, and one durable append."""
    for name, begin, at_most in (
        ("event accepted, leased, first entry / one durable append", begun, 3),
        ("the same, accepted before its turn is prepared", begun_from_the_line, None),
    ):
        report(name, *_begun_and_appended(directory / begin.__name__, begin), at_most=at_most)


def _begun_and_appended(
    directory: Path, begin: Callable[[Place, int], None]
) -> tuple[float, float]:
    here = place(directory)
    with closing(here.records):
        other = here.conversations.open(AGENT, "other")
        held, transcript = here.leases.acquire(other.lease_key), here.transcript(other)
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(1, ROUNDS + 1):
            times[0].append(timed(lambda number=number: begin(here, number)))
            finish(here, number)
            times[1].append(timed(lambda n=number: transcript.append(said(n, TEXT), held)))
    return median(times[0]), median(times[1])


def begun(here: Place, number: int) -> None:
    """As whoever waits for the answer does it: nothing is before the event."""
    event = Event.said(f"e{number}", "c1", TEXT)
    start = here.inbox.start(AGENT, event)
    assert start is not None
    start.write(here.log(start), said(2 * number - 1, TEXT, event.id))


def begun_from_the_line(here: Place, number: int) -> None:
    """As a server does it, which answers as soon as the event is safe."""
    event = Event.said(f"e{number}", "c1", TEXT)
    accepted = here.inbox.accept(AGENT, event, rejects=False)
    assert accepted.lease is not None
    conversation, lease, waiting = accepted.conversation, accepted.lease, accepted.first
    assert waiting is not None
    start = start_of(conversation, waiting, lease)
    start.write(here.log(start), said(2 * number - 1, TEXT, event.id))


def finish(here: Place, number: int) -> None:
    """The rest of the turn, which is not what is measured."""
    conversation = here.conversations.open(AGENT, "c1")
    fence = here.records.scan(conversation.lease_key, limit=1)[0]
    held = Lease(conversation.lease_key, fence.counter, fence.value["mark"])
    running = here.inbox.next(conversation, held)
    assert running is not None
    assert not isinstance(running, NextEvent)
    here.transcript(conversation).append(said(2 * number, "answer"), held)
    ending = Ending("done", running.turn_id, running.first, 2 * number)
    here.inbox.end(conversation, running, ending, held)
    here.leases.release(held)


def _going_on(directory: Path) -> None:
    """The window of the newest session, with a long past and with none."""
    here = place(directory / "on")
    with closing(here.records):
        long = filled(here, "long", OLD + SESSION, sessions=(1, OLD + 1))
        short = filled(here, "short", SESSION, sessions=(1,))
        ours, peer = compare(
            lambda: here.transcript(long).window(),
            lambda: here.transcript(short).window(),
            rounds=200,
        )
        assert len(here.transcript(long).window().entries) == SESSION
    report("window of 100 after 99,900 older entries / of 100", ours, peer, at_most=1.5)


def _on_disk(directory: Path) -> None:
    here = place(directory / "disk")
    kept = filled(here, "c1", KEPT, sessions=(1,))
    lines = b"".join(
        json.dumps(line, ensure_ascii=False).encode() + b"\n"
        for line in exported(kept, here.transcript(kept), here.conversations.carried(kept))
    )
    here.records.close()
    size = (directory / "disk" / "state.db").stat().st_size
    report("bytes of 10,000 entries / the same as JSON lines", size, len(lines), at_most=1.5)


def _beside(directory: Path) -> None:
    """The same texts, one after the other, here and there in turns; then the whole is loaded."""
    for name, module, peer in (
        ("SQLiteSession", "agents", _session),
        ("SqliteSaver", "langgraph", _saver),
    ):
        if find_spec(module) is None:
            print(f"{name}: not installed (pip install .[bench])")
            continue
        ours, theirs = _ours(directory / name), peer(directory / name)
        numbers = iter(range(1, 2 * PEER_ENTRIES + 1))
        append = compare(
            lambda ours=ours, numbers=numbers: ours.append(next(numbers)),
            lambda theirs=theirs: theirs.append(1),
            rounds=PEER_ENTRIES,
        )
        load = compare(ours.load, theirs.load, rounds=50)
        size = (ours.size(), theirs.size())
        report(f"{PEER_ENTRIES} entries: append one / {name}", *append, at_most=None)
        report(f"{PEER_ENTRIES} entries: load all / {name}", *load, at_most=None)
        report(f"{PEER_ENTRIES} entries: bytes on disk / {name}", *size, at_most=None)


@dataclass(frozen=True)
class Side:
    append: Callable[[int], object]
    load: Callable[[], object]
    size: Callable[[], int]
    """Ends it, too."""


def _ours(directory: Path) -> Side:
    here = place(directory)
    kept = here.conversations.open(AGENT, "c1")
    lease = here.leases.acquire(kept.lease_key)
    transcript = here.transcript(kept)

    def size() -> int:
        here.records.close()
        return (directory / "state.db").stat().st_size

    return Side(lambda n: transcript.append(said(n, TEXT), lease), transcript.window, size)


def _session(directory: Path) -> Side:
    from agents import SQLiteSession

    file = directory / "session.db"
    session: Any = SQLiteSession("c1", file)
    loop = asyncio.new_event_loop()

    def run(coroutine: Any) -> Any:
        return loop.run_until_complete(coroutine)

    def size() -> int:
        session.close()
        run(loop.shutdown_default_executor())
        loop.close()
        return file.stat().st_size

    item = {"role": "user", "content": TEXT}
    return Side(lambda _: run(session.add_items([item])), lambda: run(session.get_items()), size)


def _saver(directory: Path) -> Side:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    file = directory / "saver.db"
    connection = sqlite3.connect(file, check_same_thread=False)
    saver: Any = SqliteSaver(connection)
    saver.setup()
    config: Any = {"configurable": {"thread_id": "c1", "checkpoint_ns": ""}}
    messages: list[dict[str, str]] = []

    def append(_: int) -> None:
        nonlocal config
        messages.append({"role": "user", "content": TEXT})
        version = len(messages)
        checkpoint: Any = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(messages)}
        checkpoint["channel_versions"] = {"messages": version}
        config = saver.put(config, checkpoint, {"step": version}, {"messages": version})

    def size() -> int:
        connection.close()
        return file.stat().st_size

    return Side(append, lambda: saver.get_tuple(config), size)


def place(directory: Path) -> Place:
    directory.mkdir(exist_ok=True)
    for name in ("entries", "staging"):
        (directory / name).mkdir(exist_ok=True)
    records = SqliteRecords(directory / "state.db", clock=CLOCK)
    large = FileBlobs(directory / "entries", directory / "staging")
    person = Person(UserId("usr_1"), "owner")
    owner = Principal(AccountId("acct_1"), person, person)
    leases, jobs = Leases(records, CLOCK), Jobs(records, CLOCK)
    conversations = Conversations(owner, records, large, CLOCK, leases=leases, jobs=jobs)
    return Place(records, leases, conversations, EventQueue(conversations))


def filled(here: Place, key: str, count: int, *, sessions: tuple[int, ...]) -> Conversation:
    now = stamp_of(CLOCK.now())
    return here.conversations.add(
        AGENT,
        key,
        [new_session(first, now) for first in sessions],
        (Carried(said(number, TEXT)) for number in range(1, count + 1)),
    )


def said(number: int, text: str, event_id: str | None = None) -> Entry:
    message = user(text) if number % 2 else Message("assistant", (Text(text),))
    return Entry(number, stamp_of(CLOCK.now()), TurnId(new_id("turn")), message, event_id)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
