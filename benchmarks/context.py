"""What the prompt costs: the provider's cache in a long conversation, and putting it together again."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from benchmarks.ratio import compare, report
from harness.agents.mounts import Mount
from harness.agents.record import AgentConfig
from harness.context.assemble import Numbered, assemble
from harness.context.history_message import HistoryMessage
from harness.context.memory_parts import Memory
from harness.context.prompt import MountView, Sources, prompt_parts
from harness.context.prune import Pruning, leaving, prune
from harness.context.repair import repair
from harness.context.snapshot import Moment, ShownState, SnapshotKey, after, decide
from harness.messages.message import Message, Part, Text, ToolCall, ToolResult, part_as_json, user
from harness.messages.model_request import ModelRequest
from harness.prompts.prompt_request import build_request
from harness.prompts.prompt_sources import PromptSources
from harness.runtime.templates import render
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Entry, TranscriptWindow
from workspaces.accounts.account import default_owner
from workspaces.clock import SystemClock
from workspaces.home.layout import Home
from workspaces.home.workspaces import Workspaces
from workspaces.ids import TurnId
from workspaces.revision import Author, RevisionId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.timestamp import stamp_of


@dataclass(frozen=True)
class Workload:
    """A conversation, in characters. The specification says how many requests it has measured and what came
    out, and not what was said: with these sizes all five of its figures come out here, within an eighth."""

    turns: int = 40
    steps: int = 5
    """Requests a turn; each but the last calls a tool."""
    question: int = 300
    remark: int = 200
    """Beside each call."""
    answer: int = 1_100
    results: tuple[int, ...] = (200, 800, 3_000, 12_000)
    memory: int = 6_000
    steps_per_line: int = 5
    """Of memory: one is written in each turn."""


USUAL = Workload()
LONG_TURNS = Workload(turns=20, steps=10)
WRITE, READ = 1.25, 0.1
BLOCKS_BACK = 20
SEEDS = range(5)
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
TURN = TurnId("turn_1")
WINDOW = TranscriptWindow(
    new_session(1, stamp_of(NOW)), (Entry(1, stamp_of(NOW), TURN, user("hello")),)
)
VIEW = MountView("notes", True, "What this project has decided.", True, True)


def main() -> None:
    conversations = [conversation(seed) for seed in SEEDS]
    baseline = sum(cost(rereading(steps)) for steps in conversations)
    for claim, shown, goal in (
        ("no tool traffic of earlier turns (published: 0.61)", without_tools, None),
        ("results cut once to 200 characters (0.73)", cut_to(200), None),
        ("results cut once to 400 characters (0.81)", cut_to(400), None),
        ("three turns whole, the rest without (1.53)", three_whole, None),
        ("nothing pruned (2.46)", whole, None),
        ("calls and 400 characters of results of 10 turns", pruned, 0.75),
    ):
        ours = sum(cost(texts_of(requests_of(steps, shown))) for steps in conversations)
        report(f"input cost: {claim} / rereading", ours, baseline, at_most=goal)
    long_turns()
    ten_thousand_entries()
    with tempfile.TemporaryDirectory() as place:
        unchanged(Path(place))


Step = tuple[list[HistoryMessage], str]
"""The messages that a request shows, and MEMORY.md as it is then."""

Shown = Callable[[Sequence[HistoryMessage], int], Sequence[Numbered]]
"""The messages of a request; the number is that from which on its snapshot lets traffic be shown."""


def conversation(seed: int, work: Workload = USUAL) -> list[Step]:
    """Each turn asks, remarks and uses a tool in each step but the last, and answers."""
    chance = random.Random(seed)
    memory = [f"- fact {n:03}: {words(chance, 45)}" for n in range(work.memory // 60)]
    said: list[HistoryMessage] = []
    steps: list[Step] = []

    def say(message: Message) -> None:
        said.append(HistoryMessage(len(said) + 1, TurnId(f"turn_{turn}"), message))

    for turn in range(work.turns):
        say(user(words(chance, work.question)))
        for step in range(work.steps):
            number = turn * work.steps + step
            if number and number % work.steps_per_line == 0:
                memory.append(f"- new {number:03}: {words(chance, 45)}")
            steps.append((list(said), "# Memory\n\n" + "\n".join(memory) + "\n"))
            if step == work.steps - 1:
                say(Message("assistant", (Text(words(chance, work.answer)),)))
                continue
            call_id = f"toolu_{number}"
            call = ToolCall(call_id, "bash", {"command": words(chance, 60)})
            say(Message("assistant", (Text(words(chance, work.remark)), call)))
            result = words(chance, chance.choice(work.results))
            say(Message("user", (ToolResult(call_id, result),)))
    return steps


def rereading(steps: Sequence[Step]) -> list[str]:
    """The baseline: memory as it is now in each prompt, no tool traffic of earlier turns."""
    sent: list[str] = []
    for said, memory in steps:
        system = f"{guidance()}\n\n<memory>\n{memory}</memory>\n\nToday is 2026-11-18."
        sent.append(serialised((system,), [one for _, one in without_tools(said)]))
    return sent


def without_tools(said: Sequence[HistoryMessage], _: int = 0) -> list[Numbered]:
    """The turn that runs is left as it is."""
    return _with_whole(1, said, lambda part: part if isinstance(part, Text) else None)


def three_whole(said: Sequence[HistoryMessage], _: int) -> list[Numbered]:
    """The newest three that have ended."""
    return _with_whole(4, said, lambda part: part if isinstance(part, Text) else None)


def cut_to(characters: int) -> Shown:
    def cut(part: Part) -> Part:
        if not isinstance(part, ToolResult) or len(part.text) <= characters:
            return part
        half = characters // 2
        return replace(part, text=part.text[:half] + part.text[-half:])

    return lambda said, _: _with_whole(1, said, cut)


def _with_whole(
    turns: int, said: Sequence[HistoryMessage], shown: Callable[[Part], Part | None]
) -> list[Numbered]:
    """So many of the newest turns as they are, and of the others what is shown of each part."""
    newest = [*dict.fromkeys(one.turn for one in said)][-turns:]
    kept: list[Numbered] = []
    for one in said:
        message = one.message
        if one.turn not in newest:
            parts = (shown(part) for part in message.parts)
            message = replace(message, parts=tuple(part for part in parts if part is not None))
        if message.parts:
            kept.append((one.number, message))
    return kept


def whole(said: Sequence[HistoryMessage], _: int) -> Sequence[Numbered]:
    return prune(said, None, render, running=None)


def pruned(said: Sequence[HistoryMessage], traffic_from: int) -> Sequence[Numbered]:
    shown = prune(said, Pruning(), render, running=said[-1].turn, traffic_from=traffic_from)
    check(shown, said)
    return shown


def requests_of(steps: Sequence[Step], shown: Shown) -> list[ModelRequest]:
    held: ShownState | None = None
    sent: list[ModelRequest] = []
    for number, (said, memory) in enumerate(steps):
        at = NOW + timedelta(seconds=5 * number)
        since = held.snapshot.traffic_from if held else 0
        found = leaving(said, Pruning(), render, running=said[-1].turn, traffic_from=since)
        news = decide(held, replace(moment(memory, said[-1].number, at), leaving=found), render)
        held = after(held, news, at)
        messages = shown(said, held.snapshot.traffic_from)
        sent.append(assemble(held.snapshot, held.deltas, messages))
    return sent


def texts_of(requests: Iterable[ModelRequest]) -> list[str]:
    return [serialised(request.system, request.messages) for request in requests]


def long_turns() -> None:
    """So long that a provider, looking back from the newest message, does not come to where one began."""
    requests = requests_of(conversation(0, LONG_TURNS), pruned)
    claim = "input cost, turns of ten requests: as breakpoints let it be / the least"
    report(claim, kept_cost(requests), cost(texts_of(requests)), at_most=1.1)


def check(messages: Sequence[Numbered], said: Sequence[HistoryMessage]) -> None:
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
    said: list[HistoryMessage] = []
    for number in range(1, 10_001, 2):
        turn, call_id = TurnId(f"turn_{number // 50}"), f"toolu_{number}"
        call = ToolCall(call_id, "bash", {"command": words(chance, 60)})
        asks = Message("assistant", (Text(words(chance, USUAL.remark)), call))
        if number % 50 == 1:
            asks = user(words(chance, USUAL.question))
        result = ToolResult(call_id, words(chance, chance.choice(USUAL.results)))
        answers = Message("user", (result,))
        if number % 50 == 1:
            answers = Message("assistant", (Text(words(chance, USUAL.answer)),))
        said += [HistoryMessage(number, turn, asks), HistoryMessage(number + 1, turn, answers)]
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
    return Moment(at, entry, SnapshotKey("", "", "", "", "", ""), prompt_parts(sources, render))


def guidance() -> str:
    return prompt_parts(Sources(None, (VIEW,), (), date(2026, 11, 18), 0), render)[0].text


def serialised(system: Sequence[str], messages: Sequence[Message]) -> str:
    request = ModelRequest(tuple(system), tuple(messages), ()).as_json()
    return json.dumps([request["system"], request["messages"]], ensure_ascii=False)


def cost(requests: Sequence[str]) -> float:
    """In characters written to the cache: what is not shared with the request before costs more."""
    total, before = 0.0, ""
    for request in requests:
        shared = shared_characters(before, request)
        total += READ * shared + WRITE * (len(request) - shared)
        before = request
    return total


def kept_cost(requests: Iterable[ModelRequest]) -> float:
    """As a provider counts: kept is what ends at a breakpoint of an earlier request, and it is looked for
    from each breakpoint so many blocks back."""
    total, kept = 0.0, set[str]()
    for request in requests:
        blocks = blocks_of(request)
        marks = [at for at, (_, _, is_kept) in enumerate(blocks) if is_kept]
        looked = (at for mark in marks for at in range(mark, max(-1, mark - BLOCKS_BACK), -1))
        known = max((at for at in looked if blocks[at][0] in kept), default=-1)
        for at, (_, length, _) in enumerate(blocks):
            total += (READ if at <= known else WRITE) * length
        kept |= {blocks[at][0] for at in marks}
    return total


def blocks_of(request: ModelRequest) -> list[tuple[str, int, bool]]:
    """Of each: the digest of all up to it, its length, and whether it is a breakpoint."""
    marks = request.breakpoints
    texts = [(text, at in marks.system) for at, text in enumerate(request.system)]
    for at, message in enumerate(request.messages):
        parts = [json.dumps(part_as_json(part), ensure_ascii=False) for part in message.parts]
        parts[0] = f"{message.role} {parts[0]}"
        last = len(parts) - 1
        texts += [(text, n == last and at in marks.messages) for n, text in enumerate(parts)]
    digest, blocks = sha256(), list[tuple[str, int, bool]]()
    for text, is_kept in texts:
        digest.update(text.encode())
        blocks.append((digest.hexdigest(), len(text), is_kept))
    return blocks


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
    briefing = PromptSources(AgentConfig(), [Mount("notes", workspace, True)], model="m")
    first = build_request(briefing, None, WINDOW, (), at=NOW, running=None)
    copy = place / "copy"
    copy.write_text("\n\n".join(first.request.system))

    def ours() -> object:
        return build_request(briefing, first.held, WINDOW, (), at=NOW, running=None)

    def peer() -> object:
        return copy.read_text()

    report(
        "an unchanged prompt put together / reading its bytes",
        *compare(ours, peer, rounds=400),
        at_most=5,
    )


if __name__ == "__main__":
    main()
