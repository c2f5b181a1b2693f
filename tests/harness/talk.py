"""Processes that talk: rooms on a home on the disk, models that answer by rule, and crashes on purpose.

The functions that take plain texts and numbers are run by `tests.workspaces.actors` in processes of their
own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.agents.record import AgentRecord
from harness.billing.ledger import UsageOwner, UsagePurpose
from harness.bootstrap.composition import wire
from harness.bootstrap.first_start import create_defaults
from harness.bootstrap.job_kinds import job_kinds
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.conversation import Conversation, Conversations
from harness.conversations.event_queue import EventQueue
from harness.conversations.turn_start import TurnStart
from harness.jobs.job import Jobs
from harness.jobs.runner import JobRunner
from harness.messages.event import Approval, Event
from harness.messages.message import Message, Text, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit, Progress, silent
from harness.models.metered import MeteredModel
from harness.models.port import Model
from harness.prompts.turn_log import TurnLog
from harness.runtime.settings import read_settings
from harness.transcripts.outcome import Outcome
from harness.transcripts.transcript import Entry
from harness.turns.dispatcher import Dispatcher
from workspaces.clock import Clock
from workspaces.coordination.lease import TERMS, Leases, LeaseTimings
from workspaces.errors import TooMany
from workspaces.ids import ConversationId
from workspaces.storage.records import Counter, RecordChange, RecordStore

ATTEMPT_S = 0.05


def _is_told(part: Text) -> bool:
    """By the harness, beside what was said."""
    return part.text.startswith("<memory-change ")


NOTES = "abcd"
"""What one turn writes."""


class Rule:
    """Answers what was said, after tool calls that write notes named after it, if it `writes`."""

    name = "rule"

    def __init__(self, *, writes: bool = False) -> None:
        self._writes = writes
        self.asked = 0

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        self.asked += 1
        newest = request.messages[-1]
        said = next(
            part.text
            for message in reversed(request.messages)
            for part in reversed(message.parts)
            if message.role == "user" and isinstance(part, Text) and not _is_told(part)
        )
        has_result = any(isinstance(part, ToolResult) for part in newest.parts)
        if self._writes and not has_result:
            calls = [
                ToolCall(f"toolu_{note}", "write", {"path": f"notes/{note}.md", "content": note})
                for note in (f"{said}{which}" for which in NOTES)
            ]
            return Reply(Message("assistant", (Text("Let me note that."), *calls)), Usage(1, 1))
        return Reply(Message("assistant", (Text(f"answer to {said}"),)), Usage(1, 1))


def opened(home: str | Path, model: Model, clock: Clock | None = None) -> PrincipalServices:
    house = wire(read_settings(Path(home), environment=dict(os.environ)), model=model, clock=clock)
    rooms = house.rooms(house.owner())
    create_defaults(rooms)
    return rooms


def runner_of(rooms: PrincipalServices) -> JobRunner:
    """Of jobs that are all of this principal."""
    return JobRunner(
        rooms.jobs, job_kinds(lambda _: rooms, rooms.settings.home.machine), rooms.clock
    )


def ingress_of(
    rooms: PrincipalServices,
    *,
    records: RecordStore | None = None,
    terms: LeaseTimings = TERMS,
    process: str | None = None,
) -> Dispatcher:
    """The rooms' ingress on another wire to the records, on other terms, under another name."""
    wire_ = records or rooms.records
    leases = Leases(wire_, rooms.clock, terms=terms, process=process)
    jobs = Jobs(wire_, rooms.clock, terms=terms, process=process)
    conversations = type(rooms.conversations)(
        rooms.principal,
        wire_,
        rooms.conversations._large,
        rooms.clock,
        leases=leases,
        jobs=jobs,
    )
    inbox = EventQueue(conversations)
    return replace(rooms.dispatcher, conversations=conversations, event_queue=inbox, leases=leases)


def log_of(conversations: Conversations, start: TurnStart) -> TurnLog:
    """The log of the turn that would begin."""
    transcript = conversations.transcript(start.conversation)
    return TurnLog(transcript, conversations.prompt_log(start.conversation), start.right)


async def delivered(
    ingress: Dispatcher, event_id: str, key: str, text: str, emit: Emit = silent
) -> Outcome:
    """As a client does it that is patient where it may be."""
    agent = ingress.agents.get("assistant")
    while True:
        try:
            return await ingress.run(agent, Event.said(event_id, key, text), emit)
        except TooMany:
            await asyncio.sleep(ATTEMPT_S)


def entries_of(rooms: PrincipalServices, key: str) -> list[Entry]:
    return list(rooms.conversations.transcript(conversation_of(rooms, key)).entries())


def conversation_of(rooms: PrincipalServices, key: str) -> Conversation:
    found = rooms.conversations.find(rooms.agents.get("assistant").id, key)
    assert found is not None
    return found


def assert_in_order(rooms: PrincipalServices, key: str) -> list[str]:
    """No hole, each event once with its answer behind it, in the order in which they came in."""
    entries = entries_of(rooms, key)
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    events = [entry.event_id for entry in entries if entry.event_id is not None]
    assert len(set(events)) == len(events), "an event was taken in twice"
    conversation = conversation_of(rooms, key)
    claims = [
        rooms.dispatcher.event_queue.claims.find(conversation.claim_key(event)) for event in events
    ]
    places = [claim.about["number"] for claim in claims if claim is not None]
    assert places == sorted(places)
    assert len(places) == len(events)
    for claim in claims:
        assert claim is not None
        assert claim.outcome is not None, "an event was answered by nobody"
    return events


# what runs in processes of its own


def many(home: str, name: str, count: int, key: str) -> None:
    """So many events at once, on one conversation."""
    rooms = opened(home, Rule())

    async def all_at_once() -> list[Outcome]:
        texts = [f"{name}-{number}" for number in range(count)]
        return await asyncio.gather(
            *(delivered(rooms.dispatcher, text, key, text) for text in texts)
        )

    print(json.dumps([outcome.reply for outcome in asyncio.run(all_at_once())]))
    rooms.records.close()


class Deadly:
    """A wire to the records on which the process dies when it is told to."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.passed = 0
        self.die_at: int | None = None

    def point(self) -> None:
        if self.passed == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed += 1

    def get(self, key: Any) -> Any:
        self.point()
        return self._store.get(key)

    def scan(self, partition: str, **how: Any) -> Any:
        self.point()
        return self._store.scan(partition, **how)

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        self.point()
        counters = self._store.write(*changes)
        self.point()
        return counters

    def close(self) -> None:
        self._store.close()


def storm(home: str, processes: int, events: int, conversations: int, seed: int) -> None:
    """All processes deliver all events; a tenth of the deliveries ends in a SIGKILL somewhere."""
    rooms = opened(home, Rule())
    randomly = random.Random(seed)
    plans: dict[int, list[int]] = {}
    deaths = 0

    def start(rest: list[int]) -> None:
        child_seed = randomly.randrange(2**32)
        pid = os.fork()
        if pid == 0:
            with ending():
                asyncio.run(_deliver_all(rooms, rest, conversations, child_seed))
        plans[pid] = rest

    for _ in range(processes):
        start(randomly.sample(range(events), events))
    while plans:
        pid, status = os.wait()
        rest = plans.pop(pid)
        if os.WIFSIGNALED(status):
            deaths += 1
            done = (Path(home) / f"done-{pid}").read_text().split()
            start([number for number in rest if str(number) not in set(done)])
        else:
            assert os.WEXITSTATUS(status) == 0
    print(json.dumps({"deaths": deaths}))


async def _deliver_all(
    rooms: PrincipalServices, events: list[int], conversations: int, seed: int
) -> None:
    randomly = random.Random(seed)
    deadly = Deadly(rooms.records)
    ingress = ingress_of(rooms, records=deadly)
    with (rooms.settings.home.root / f"done-{os.getpid()}").open("w") as done:
        for number in events:
            deadly.passed, deadly.die_at = 0, None
            if randomly.random() < 0.1:
                deadly.die_at = randomly.randrange(25)
            text = f"event-{number}"
            outcome = await delivered(ingress, text, f"c{number % conversations}", text)
            assert outcome.status in {"done", "failed"}
            done.write(f"{number}\n")
            done.flush()


@contextmanager
def ending() -> Iterator[None]:
    """A forked child ends here, whatever happens, and never in what its parent was about to do."""
    code = 1
    try:
        yield
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def forked(work: Callable[[], None]) -> bool:
    """Whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        with ending():
            work()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


class Dying:
    """A model that passes the points at which its process may die."""

    name = "rule"

    def __init__(self, point: Callable[[], None]) -> None:
        self._point = point
        self._rule = Rule(writes=True)

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        self._point()
        reply = await self._rule.reply(request, output_tokens_max=output_tokens_max, emit=emit)
        self._point()
        return reply


async def talked(ingress: Dispatcher, text: str, emit: Emit = silent) -> Outcome:
    """Something is said, and each call that waits then is allowed by an event of its own."""
    outcome = await delivered(ingress, text, "c1", text, emit)
    agent = ingress.agents.get("assistant")
    while outcome.status == "waiting":
        (first, *_) = outcome.pending
        allowed = Approval(call_id=first.id, is_allowed=True)
        event = Event(f"allow-{first.id}", "c1", (allowed,))
        outcome = await ingress.run(agent, event, emit)
    return outcome


async def served(ingress: Dispatcher, text: str, emit: Emit = silent) -> Outcome:
    """As a server does it: accepted first, and then answered."""
    agent = ingress.agents.get("assistant")
    accepted = await ingress.enqueue(agent, Event.said(text, "c1", text))
    return await ingress.wait(accepted, emit)


def kill_everywhere(home: str, permission: str, way: str) -> None:
    """One event after the other, each killed one point later; then somebody else delivers it again."""
    comes = served if way == "served" else talked
    rooms = opened(home, Rule(writes=True))
    rooms.sandboxes.patch("default", {"config": {"permission": permission}})
    told: list[dict[str, Any]] = []
    for number in range(200):
        text = f"e{number}"

        def first(number: int = number, text: str = text) -> None:
            deadly = Deadly(rooms.records)
            deadly.die_at = number

            def open_model(
                agent: AgentRecord,
                conversation_id: ConversationId | None,
                purpose: UsagePurpose = "turn",
            ) -> Model:
                dying = Dying(deadly.point)
                return metered(rooms, dying, agent, conversation_id, purpose)

            ingress = replace(ingress_of(rooms, records=deadly), open_model=open_model)

            def at_a_tool(progress: Progress) -> None:
                deadly.point()

            asyncio.run(comes(ingress, text, at_a_tool))

        def second(text: str = text) -> None:
            outcome = asyncio.run(talked(ingress_of(rooms), text))
            (Path(home) / f"outcome-{text}").write_text(json.dumps(outcome.as_json()))

        was_killed = not forked(first)
        assert forked(second)
        outcome = json.loads((Path(home) / f"outcome-{text}").read_text())
        told.append({"event": text, "killed": was_killed, "outcome": outcome})
        if not was_killed:
            break
    print(json.dumps(told))


def metered(
    rooms: PrincipalServices,
    model: Model,
    agent: AgentRecord,
    conversation_id: ConversationId | None,
    purpose: UsagePurpose,
) -> Model:
    """Noted as the rooms' own is."""
    principal, means = rooms.principal, rooms.dispatcher
    spender = UsageOwner(
        principal.account_id, agent.id, principal.user_id, conversation_id, purpose
    )
    ledger, leaves = rooms.usage.ledger, purpose == "turn"
    return MeteredModel(model, spender, ledger, means.limiter, caller_records_replies=leaves)


class Held:
    """A model that says that it was asked, and answers when a file appears."""

    name = "held"

    def __init__(self, home: str) -> None:
        self._home = Path(home)

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        (self._home / "asked").touch()
        while not (self._home / "answer").exists():
            time.sleep(0.01)  # noqa: ASYNC251 - the whole process waits, as a stopped one does
        return Reply(Message("assistant", (Text("too late"),)), Usage())


def hold(home: str, lease_s: float) -> None:
    rooms = opened(home, Held(home))
    terms = LeaseTimings(lease_s, lease_s / 3, lease_s / 12)
    ingress = ingress_of(rooms, terms=terms)
    outcome = asyncio.run(delivered(ingress, "e1", "c1", "hello"))
    print(json.dumps(outcome.as_json()))


def follow(home: str, lease_s: float) -> None:
    rooms = opened(home, Rule())
    terms = LeaseTimings(lease_s, lease_s / 3, lease_s / 12)
    outcome = asyncio.run(delivered(ingress_of(rooms, terms=terms), "e1", "c1", "hello"))
    print(json.dumps(outcome.as_json()))
