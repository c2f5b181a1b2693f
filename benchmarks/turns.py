"""What a turn costs besides the model and the tools, with a provider that answers at once.

The peer is a loop over the provider's bare SDK that makes the same calls: the same prompt and tools, the same
file read when the model asks for it, and nothing stored. A turn of ours is durable step by step.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.provider import CALLS, MODEL, PATH, provider
from benchmarks.ratio import compare, report
from harness import Harness
from harness.messages.event import Event
from harness.messages.message import Message, Text, ToolCall, ToolResult, user
from harness.messages.progress import Emit, Progress, TextArrived, silent
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Carried, Entry
from workspaces.ids import TurnId, new_id
from workspaces.storage.records import Key, Put
from workspaces.timestamp import stamp_of

ROUNDS = 40
FILES = 1_000
FEW, MANY = 10, 10_000
"""Earlier turns; all but the last ten of them in earlier sessions."""
SESSION_TURNS = 10
AT_ONCE = 200
COMMITS = 7
"""Of a turn of three steps in a new conversation."""


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as name, provider() as url:
        os.environ |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url, "HARNESS_MODEL": MODEL}
        with Harness.open(Path(name) / "home") as harness:
            _fill(harness)
            asyncio.run(_measure(harness, url))


def _fill(harness: Harness) -> None:
    """A workspace of many files, and two conversations with a past."""
    workspace = harness.workspaces.get("notes")
    by = harness.rooms.principal.author("api")
    for number in range(FILES):
        (workspace.root / "notes" / f"n{number}.md").write_text(f"# Note {number}\n\n- one line\n")
    workspace.edits.commit()
    workspace.write("MEMORY.md", b"# Memory\n\n- tea is green\n", by=by)
    agent = harness.agents.get("assistant")
    for key, turns in (("few", FEW), ("many", MANY)):
        firsts = [n * 6 + 1 for n in range(0, turns, SESSION_TURNS)]
        at = stamp_of(harness.rooms.clock.now())
        sessions = [new_session(first, at) for first in firsts]
        harness.conversations.add(agent.id, key, sessions, _past(turns, at))


def _past(turns: int, at: Any) -> Iterator[Carried]:
    numbers = itertools.count(1)
    for turn in range(turns):
        for message in _turn(turn):
            yield Carried(Entry(next(numbers), at, TurnId(f"turn_{turn}"), message))


def _turn(number: int) -> Iterator[Message]:
    yield user("Look at that note twice, please.")
    for name in ("a", "b"):
        call = ToolCall(f"toolu_{number}{name}", "read", {"path": PATH})
        yield Message("assistant", (call,))
        yield Message("user", (ToolResult(call.id, "1\t# Note 0\n2\t\n3\t- one line\n"),))
    yield Message("assistant", (Text("It says: one line."),))


async def _measure(harness: Harness, url: str) -> None:
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
    peer = _Sdk(client, harness)
    fresh = (new_id("c") for _ in itertools.count())
    claim = f"a turn of {CALLS + 1} steps / the bare SDK loop making the same calls"
    ours, theirs = await _in_turns(
        lambda: _said(harness, next(fresh), "work"), lambda: peer.run("work")
    )
    report(claim, ours, theirs, at_most=5)
    print(f"  ours {ours * 1000:.1f} ms, the loop {theirs * 1000:.1f} ms")
    commit, look = _floor(harness)
    print(
        f"  here a durable commit takes {commit * 1000:.2f} ms, and a bare look at each of {FILES:,} files"
        f" {look * 1000:.2f} ms: a turn makes {COMMITS} of the one and one of the other"
    )
    # the newest ten turns of both stand in the window; each turn adds as much to both
    many, few = await _in_turns(
        lambda: _said(harness, "many", "work"), lambda: _said(harness, "few", "work")
    )
    report(f"after {MANY:,} earlier turns / after {FEW}", many, few, at_most=1.3)
    ours, theirs = await _in_turns(
        lambda: _first(harness, next(fresh)), lambda: peer.first("short")
    )
    report("first streamed text of a turn / of the bare SDK", ours, theirs, at_most=3)
    again = median([await peer.first("short") for _ in range(ROUNDS)])
    print(
        f"  ours {ours * 1000:.2f} ms, the SDK's {theirs * 1000:.2f} ms;"
        f" right behind another of its own {again * 1000:.2f} ms: {ours / again:.2f} ×"
    )
    seconds = await _together(lambda: _said(harness, next(fresh), "work"))
    alone = await _together(lambda: peer.run("work"))
    report(f"{AT_ONCE} concurrent turns / as many SDK loops", seconds, alone, at_most=None)
    print(f"  ours {AT_ONCE / seconds:.0f} turns a second, the loops {AT_ONCE / alone:.0f}")
    await client.close()


def _floor(harness: Harness) -> tuple[float, float]:
    """What no turn can do without: something safe on the disk, and a look at all files."""
    directory = harness.workspaces.get("notes").root / "notes"

    def commit() -> None:
        harness.rooms.records.write(Put(Key("benchmark", "floor"), {"text": "x" * 500}))

    def look() -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)

    return compare(commit, look, rounds=ROUNDS)


async def _said(harness: Harness, key: str, text: str, emit: Emit = silent) -> float:
    agent = harness.agents.get("assistant")
    event = Event.said(new_id("evt"), key, text)
    begin = perf_counter()
    outcome = await harness.rooms.dispatcher.run(agent, event, emit)
    seconds = perf_counter() - begin
    assert outcome.reply == "Hello."
    return seconds


async def _first(harness: Harness, key: str) -> float:
    first: list[float] = []

    def hear(progress: Progress) -> None:
        if isinstance(progress, TextArrived) and not first:
            first.append(perf_counter())

    begin = perf_counter()
    await _said(harness, key, "short", hear)
    return first[0] - begin


class _Sdk:
    """The loop that everybody writes first."""

    def __init__(self, client: Any, harness: Harness) -> None:
        self._client = client
        asked = harness.preview("assistant", message="work").request.as_json()
        cached = {"cache_control": {"type": "ephemeral"}}
        system = [{"type": "text", "text": text} for text in asked["system"]]
        self._asked = {
            "model": MODEL,
            "max_tokens": 16_000,
            "system": [*system[:-1], {**system[-1], **cached}],
            "tools": asked["tools"],
        }
        self._root = harness.workspaces.get("notes").root

    async def run(self, text: str) -> float:
        begin = perf_counter()
        messages: list[Any] = [{"role": "user", "content": text}]
        while True:
            async with self._client.messages.stream(**self._asked, messages=messages) as stream:
                reply = await stream.get_final_message()
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return perf_counter() - begin
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": (self._root / call.input["path"]).read_text(),
                }
                for call in calls
            ]
            messages += [
                {"role": "assistant", "content": [block.model_dump() for block in reply.content]},
                {"role": "user", "content": results},
            ]

    async def first(self, text: str) -> float:
        begin, first = perf_counter(), 0.0
        messages = [{"role": "user", "content": text}]
        async with self._client.messages.stream(**self._asked, messages=messages) as stream:
            async for event in stream:
                if event.type == "text" and not first:
                    first = perf_counter()
        return first - begin


async def _in_turns(
    ours: Callable[[], Awaitable[float]], peer: Callable[[], Awaitable[float]]
) -> tuple[float, float]:
    """Each behind the other. What the SDK makes of its types is forgotten whenever the interpreter has
    collected its garbage, as the work of a turn makes it do, and made anew (0.5 ms): asked twice in a row it
    would be measured without."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 2):
        for work, took in zip((ours, peer), times, strict=True):
            seconds = await work()
            if number >= 2:  # connections are open by then
                took.append(seconds)
    return median(times[0]), median(times[1])


async def _together(one: Callable[[], Awaitable[float]]) -> float:
    begin = perf_counter()
    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return perf_counter() - begin


if __name__ == "__main__":
    main()
