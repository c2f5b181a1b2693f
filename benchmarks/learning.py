"""What learning in the background costs a turn, and what comparing facts costs a pass.

python -m benchmarks.learning

A turn's own time is that of a whole turn with a model that answers at once, in a conversation that goes on.
The two agents differ only in `extract.enabled`. They take turns, because machines are noisy.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path

from benchmarks.ratio import compare, report
from harness import Harness
from harness.learning.candidate import FactCandidate, planned
from harness.memory.facts.fact import Fact
from harness.memory.similar import similarity, word_set
from harness.messages.event import Event
from harness.messages.message import Message, Text
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit
from workspaces.ids import Version, new_id
from workspaces.paths import WorkspacePath
from workspaces.timestamp import Stamp

ROUNDS = 400
TURNS_A_CONVERSATION = 20
ROWS, CANDIDATES = 20_000, 5
"""A hundred thousand comparisons."""


class AtOnce:
    """A model that answers at once."""

    name = "demo"

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        del request, output_tokens_max, emit
        return Reply(Message("assistant", (Text("Hello."),)), Usage(10, 2))


def main() -> None:
    _turns()
    _comparisons()


def _turns() -> None:
    with (
        tempfile.TemporaryDirectory(dir=".") as name,
        Harness.open(Path(name) / "home", model=AtOnce()) as harness,
        asyncio.Runner() as runner,
    ):
        agents = {
            is_on: harness.agents.create(
                f"learns-{is_on}", workspaces=["notes"], extract={"enabled": is_on}
            )
            for is_on in (True, False)
        }
        numbers = {True: itertools.count(), False: itertools.count()}

        def turn(is_on: bool) -> None:
            key = f"c{next(numbers[is_on]) // TURNS_A_CONVERSATION}"
            event = Event.said(new_id("evt"), key, "What is new about the harbour?")
            runner.run(harness.rooms.dispatcher.run(agents[is_on], event))

        for is_on in (True, False):
            turn(is_on)
        on, off = compare(lambda: turn(True), lambda: turn(False), rounds=ROUNDS)
    report("a turn's own time with extraction on / off", on, off, at_most=1.02)
    print(f"  on {on * 1000:.2f} ms, off {off * 1000:.2f} ms")


def _comparisons() -> None:
    rows = [_row(number) for number in range(ROWS)]
    texts = [
        f"The crane number {number} stands at pier {number % 7}" for number in range(CANDIDATES)
    ]
    candidates = [
        FactCandidate(f"auto:c{number}", text, "workspace") for number, text in enumerate(texts)
    ]

    def ours() -> None:
        assert planned(candidates, {"workspace": rows}).count <= CANDIDATES

    def each() -> None:
        known = [word_set(row.value) for row in rows]
        for text in texts:
            wanted = word_set(text)
            assert not any(similarity(wanted, one) > 0.95 for one in known)

    mine, peer = compare(ours, each, rounds=5)
    report(f"{CANDIDATES} facts among {ROWS:,}: comparing with each", mine, peer, at_most=1.2)
    print(f"  ours {mine * 1000:.0f} ms, each {peer * 1000:.0f} ms")


def _row(number: int) -> Fact:
    stamp = Stamp("2026-01-01T00:00:00.000000Z")
    return Fact(
        id=f"mem_{number}",
        path=WorkspacePath(f"facts/k{number}.md"),
        version=Version("0"),
        key=f"k{number}",
        value=f"The thing with number {number} lies on shelf {number % 97} of store {number % 13}.",
        pinned=False,
        importance=0,
        created_at=stamp,
        updated_at=stamp,
        source="auto",
        author="x",
    )


if __name__ == "__main__":
    main()
