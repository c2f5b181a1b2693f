"""What the prompt costs: the provider's cache in a long conversation, and putting it together again."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from benchmarks.ratio import compare, report
from harness.agent import AgentConfig, Mount
from harness.briefing import Briefing
from harness.context.assemble import Numbered, assemble
from harness.context.memory import Memory
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.prune import Pruning, leaving, prune
from harness.context.repair import repair
from harness.context.said import Said
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


@dataclass(frozen=True)
class Texts:
    """What is said in a turn, in characters. The more, the more a prompt that changes costs: all of it is
    read anew; and the less what tools said weighs beside it."""

    question: int
    remark: int
    answer: int


BRIEF = Texts(300, 200, 1_100)
LENGTHY = Texts(700, 500, 4_500)
"""So much that what the specification has measured without earlier traffic, 0.61, comes out here too."""
MEMORY_CHARACTERS = 6_000
STEPS_PER_LINE = 10
WRITE, READ = 1.25, 0.1
SEEDS = range(5)
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TURN = TurnId("turn_1")
WINDOW = Window(new_session(1, stamp_of(NOW)), (Entry(1, stamp_of(NOW), TURN, user("hello")),))
VIEW = MountView("notes", True, "What this project has decided.", True, True)


def main() -> None:
    for name, texts in (("brief", BRIEF), ("lengthy", LENGTHY)):
        conversations = [conversation(seed, texts) for seed in SEEDS]
        baseline = sum(cost(rereading(steps)) for steps in conversations)
        for claim, shown, goal in (
            ("nothing pruned", lambda said, _: prune(said, None, render, running=None), None),
            ("calls and 400 characters of results of 10 turns", pruned, 0.75),
            ("no tool traffic of earlier turns", lambda said, _: without_tools(said), None),
        ):
            ours = sum(cost(ours_of(steps, shown)) for steps in conversations)
            report(f"input cost, {name} texts: {claim} / rereading", ours, baseline, at_most=goal)
    ten_thousand_entries()
    with tempfile.TemporaryDirectory() as place:
        unchanged(Path(place))


Step = tuple[list[Said], str]
"""The messages that a request shows, and MEMORY.md as it is then."""


def conversation(seed: int, texts: Texts = BRIEF) -> list[Step]:
    """Each turn asks, remarks and uses a tool in each step but the last, and answers."""
    chance = random.Random(seed)
    memory = [f"- fact {n:03}: {words(chance, 45)}" for n in range(MEMORY_CHARACTERS // 60)]
    said: list[Said] = []
    steps: list[Step] = []

    def say(message: Message) -> None:
        said.append(Said(len(said) + 1, TurnId(f"turn_{turn}"), message))

    for turn in range(TURNS):
        say(user(words(chance, texts.question)))
        for step in range(STEPS):
            number = turn * STEPS + step
            if number and number % STEPS_PER_LINE == 0:
                memory.append(f"- new {number:03}: {words(chance, 45)}")
            steps.append((list(said), "# Memory\n\n" + "\n".join(memory) + "\n"))
            if step == STEPS - 1:
                say(Message("assistant", (Text(words(chance, texts.answer)),)))
                continue
            call_id = f"toolu_{number}"
            call = ToolCall(call_id, "bash", {"command": words(chance, 60)})
            say(Message("assistant", (Text(words(chance, texts.remark)), call)))
            result = words(chance, chance.choice(RESULT_CHARACTERS))
            say(Message("user", (ToolResult(call_id, result),)))
    return steps


def rereading(steps: Sequence[Step]) -> list[str]:
    """The baseline: memory as it is now in each prompt, no tool traffic of earlier turns."""
    sent: list[str] = []
    for said, memory in steps:
        system = f"{guidance()}\n\n<memory>\n{memory}</memory>\n\nToday is 2026-11-18."
        sent.append(serialised((system,), [one for _, one in without_tools(said)]))
    return sent


def without_tools(said: Sequence[Said]) -> list[Numbered]:
    """The turn that runs is left as it is."""
    kept: list[Numbered] = []
    for one in said:
        parts = tuple(part for part in one.message.parts if isinstance(part, Text))
        if one.turn == said[-1].turn:
            kept.append((one.number, one.message))
        elif parts:
            kept.append((one.number, replace(one.message, parts=parts)))
    return kept


def pruned(said: Sequence[Said], traffic_from: int) -> Sequence[Numbered]:
    shown = prune(said, Pruning(), render, running=said[-1].turn, traffic_from=traffic_from)
    check(shown, said)
    return shown


Shown = Callable[[Sequence[Said], int], Sequence[Numbered]]
"""The messages of a request, and from which number on the snapshot lets traffic be shown."""


def ours_of(steps: Sequence[Step], shown: Shown) -> list[str]:
    held: Held | None = None
    sent: list[str] = []
    for number, (said, memory) in enumerate(steps):
        at = NOW + timedelta(seconds=5 * number)
        since = held.snapshot.traffic_from if held else 0
        found = leaving(said, Pruning(), render, running=said[-1].turn, traffic_from=since)
        news = decide(held, replace(moment(memory, said[-1].number, at), leaving=found), render)
        held = after(held, news, at)
        request = assemble(held.snapshot, held.deltas, shown(said, held.snapshot.traffic_from))
        sent.append(serialised(request.system, request.messages))
    return sent


def check(messages: Sequence[Numbered], said: Sequence[Said]) -> None:
    """What is claimed to be visible is: without it, the cost would mean nothing."""
    turns = [*dict.fromkeys(one.turn for one in said)][-1 - Pruning().turns :]
    wanted = [part for one in said if one.turn in turns for part in one.message.parts]
    shown = {id(part) for _, message in messages for part in message.parts}
    lengths = {
        part.call_id: len(part.text)
        for _, message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    }
    for part in wanted:
        if isinstance(part, ToolCall) and id(part) not in shown:
            raise AssertionError(f"{part.id} is not shown")
        if isinstance(part, ToolResult) and lengths[part.call_id] < min(len(part.text), 400):
            raise AssertionError(f"too little is shown of {part.call_id}")


def ten_thousand_entries() -> None:
    """Of a window: every other one a call or its result, in two hundred turns."""
    chance = random.Random(1)
    said: list[Said] = []
    for number in range(1, 10_001, 2):
        turn, call_id = TurnId(f"turn_{number // 50}"), f"toolu_{number}"
        call = ToolCall(call_id, "bash", {"command": words(chance, 60)})
        asks = Message("assistant", (Text(words(chance, BRIEF.remark)), call))
        if number % 50 == 1:
            asks = user(words(chance, BRIEF.question))
        result = ToolResult(call_id, words(chance, chance.choice(RESULT_CHARACTERS)))
        answers = Message("user", (result,))
        if number % 50 == 1:
            answers = Message("assistant", (Text(words(chance, BRIEF.answer)),))
        said += [Said(number, turn, asks), Said(number + 1, turn, answers)]
    messages = [one.message for one in said]

    def ours() -> object:
        shown = prune(said, Pruning(), render, running=said[-1].turn)
        return repair(tuple(message for _, message in shown))

    def peer() -> object:
        return serialised((), messages)

    claim = "pruning and repair of 10 000 entries / serialising them"
    report(claim, *compare(ours, peer, rounds=20), at_most=3)


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
