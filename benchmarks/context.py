"""What the prompt costs: the provider's cache in a long conversation, and putting it together again."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from benchmarks.ratio import compare, report
from harness.agent import AgentConfig, Mount
from harness.briefing import Briefing
from harness.context.assemble import Numbered, assemble
from harness.context.memory import Memory
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.snapshot import Held, Moment, Terms, after, decide
from harness.message import Message, Text, ToolCall, ToolResult, user
from harness.question import put
from harness.request import Request
from harness.session import new_session
from harness.template import render
from harness.transcript import Entry, Window
from workspaces.account import default_owner
from workspaces.clock import SystemClock
from workspaces.home import Home
from workspaces.ids import TurnId
from workspaces.revision import Author, RevisionId
from workspaces.stamp import stamp_of
from workspaces.stores.memory import MemoryRecords
from workspaces.workspaces import Workspaces

TURNS, STEPS = 40, 5
RESULT_CHARACTERS = (200, 800, 3_000, 12_000)
QUESTION_CHARACTERS, REMARK_CHARACTERS, ANSWER_CHARACTERS = 300, 200, 1_100
"""What is said in a turn. The more, the more a prompt that changes costs: all of it is read anew."""
MEMORY_CHARACTERS = 6_000
STEPS_PER_LINE = 10
WRITE, READ = 1.25, 0.1
SEEDS = range(5)
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TURN = TurnId("turn_1")
WINDOW = Window(new_session(1, stamp_of(NOW)), (Entry(1, stamp_of(NOW), TURN, user("hello")),))
VIEW = MountView("notes", True, "What this project has decided.", True, True)


def main() -> None:
    conversations = [conversation(seed) for seed in SEEDS]
    baseline = sum(cost(rereading(steps)) for steps in conversations)
    for claim, is_removed, goal in (
        ("input cost: snapshot and deltas, nothing pruned / rereading memory", False, None),
        ("input cost: … with earlier tool traffic removed too / rereading memory", True, 0.75),
    ):
        ours = sum(cost(ours_of(steps, is_removed=is_removed)) for steps in conversations)
        report(claim, ours, baseline, at_most=goal)
    with tempfile.TemporaryDirectory() as place:
        unchanged(Path(place))


Step = tuple[list[Numbered], str]
"""The messages that a request shows, and MEMORY.md as it is then."""


def conversation(seed: int) -> list[Step]:
    """Each turn asks, remarks and uses a tool in each step but the last, and answers."""
    chance = random.Random(seed)
    memory = [f"- fact {n:03}: {words(chance, 45)}" for n in range(MEMORY_CHARACTERS // 60)]
    messages: list[Numbered] = []
    steps: list[Step] = []

    def say(message: Message) -> None:
        messages.append((len(messages) + 1, message))

    for turn in range(TURNS):
        say(user(words(chance, QUESTION_CHARACTERS)))
        for step in range(STEPS):
            number = turn * STEPS + step
            if number and number % STEPS_PER_LINE == 0:
                memory.append(f"- new {number:03}: {words(chance, 45)}")
            steps.append((list(messages), "# Memory\n\n" + "\n".join(memory) + "\n"))
            if step == STEPS - 1:
                say(Message("assistant", (Text(words(chance, ANSWER_CHARACTERS)),)))
                continue
            call_id = f"toolu_{number}"
            call = ToolCall(call_id, "bash", {"command": words(chance, 60)})
            say(Message("assistant", (Text(words(chance, REMARK_CHARACTERS)), call)))
            result = words(chance, chance.choice(RESULT_CHARACTERS))
            say(Message("user", (ToolResult(call_id, result),)))
    return steps


def rereading(steps: Sequence[Step]) -> list[str]:
    """The baseline: memory as it is now in each prompt, no tool traffic of earlier turns."""
    sent: list[str] = []
    for messages, memory in steps:
        system = f"{guidance()}\n\n<memory>\n{memory}</memory>\n\nToday is 2026-11-18."
        sent.append(serialised((system,), [one for _, one in without_tools(messages)]))
    return sent


def without_tools(messages: Sequence[Numbered]) -> list[Numbered]:
    """The turn that runs is left as it is."""
    newest = max(at for at, (_, one) in enumerate(messages) if one.role == "user" and one.text)
    kept: list[Numbered] = []
    for at, (number, message) in enumerate(messages):
        parts = tuple(part for part in message.parts if isinstance(part, Text))
        if at >= newest:
            kept.append((number, message))
        elif parts:
            kept.append((number, replace(message, parts=parts)))
    return kept


def ours_of(steps: Sequence[Step], *, is_removed: bool) -> list[str]:
    held: Held | None = None
    sent: list[str] = []
    for number, (messages, memory) in enumerate(steps):
        at = NOW + timedelta(seconds=5 * number)
        news = decide(held, moment(memory, messages[-1][0], at), render)
        held = after(held, news, at)
        if is_removed:
            messages = without_tools(messages)
        request = assemble(held.snapshot, held.deltas, messages)
        sent.append(serialised(request.system, request.messages))
    return sent


def moment(memory: str, entry: int, at: datetime) -> Moment:
    found = Memory("notes", memory, RevisionId("0" * 40))
    sources = Sources(None, (VIEW,), (found,), date(2026, 11, 18), 40_000)
    return Moment(at, entry, Terms("", "", "", "", "", ""), prompt_parts(sources, render))


def guidance() -> str:
    return prompt_parts(Sources(None, (VIEW,), (), date(2026, 11, 18), 0), render)[0].text


def serialised(system: Sequence[str], messages: Sequence[Message]) -> str:
    request = Request(tuple(system), tuple(messages), ()).as_json()
    return json.dumps([request["system"], request["messages"]], ensure_ascii=False)


def cost(requests: Sequence[str]) -> float:
    """In characters written to the cache: what is not shared with the request before costs more."""
    total, before = 0.0, ""
    for request in requests:
        shared = shared_characters(before, request)
        total += READ * shared + WRITE * (len(request) - shared)
        before = request
    return total


def shared_characters(one: str, other: str) -> int:
    """How many both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def words(chance: random.Random, length: int) -> str:
    text = " ".join(f"{chance.randrange(10**6):x}" for _ in range(length // 5 + 1))
    return (text + " " * length)[:length]


def unchanged(place: Path) -> None:
    """A prompt of 40 000 characters of memory, nothing of it changed since the request before."""
    home = Home(place / "home")
    home.prepare()
    clock = SystemClock()
    records = MemoryRecords(clock)
    workspaces = Workspaces(default_owner(records, clock), home, records, clock, lambda _: {})
    workspace = workspaces.create("notes")
    workspace.write("MEMORY.md", "- a fact\n" * 4_000, by=Author("me", "usr_1", "api"))
    briefing = Briefing(AgentConfig(), [Mount("notes", workspace, True)], model="m")
    first = put(briefing, None, WINDOW, (), at=NOW, running=None)
    copy = place / "copy"
    copy.write_text("\n\n".join(first.request.system))

    def ours() -> object:
        return put(briefing, first.held, WINDOW, (), at=NOW, running=None)

    def peer() -> object:
        return copy.read_text()

    report(
        "an unchanged prompt put together / reading its bytes",
        *compare(ours, peer, rounds=400),
        at_most=5,
    )


if __name__ == "__main__":
    main()
