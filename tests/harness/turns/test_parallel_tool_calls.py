"""Tool calls of one reply: read-only calls run in parallel, the rest one after another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, tool
from harness.messages.message import ToolCall, ToolResult
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.tools.port import AT_ONCE_MAX
from tests.ordinary import reachable_directory

WAIT_S = 30.0

Opened = Callable[..., tuple[Harness, ScriptedModel]]


@pytest.fixture
def opened(home: Path) -> Iterator[Opened]:
    every: list[Harness] = []

    def open_with(tools: Any, *lines: Any) -> tuple[Harness, ScriptedModel]:
        model = ScriptedModel(*lines)
        nowhere = NoSandbox("not in this test")
        every.append(Harness.open(home, model=model, sandbox=nowhere, tools=tools))
        return every[-1], model

    yield open_with
    for one in every:
        one.close()


def stored_results(harness: Harness) -> list[ToolResult]:
    transcript = harness.conversations.transcript(harness.conversation("c1"))
    parts = (part for entry in transcript.entries() for part in entry.message.parts)
    return [part for part in parts if isinstance(part, ToolResult)]


def test_read_only_calls_run_in_parallel_and_their_results_are_stored_in_order(
    opened: Opened,
) -> None:
    met = threading.Barrier(AT_ONCE_MAX)
    order: list[int] = []

    @tool(only_reads=True)
    def meet(number: int) -> int:
        """Comes back when all are there."""
        met.wait(WAIT_S)
        order.append(number)
        return number

    calls = [ToolCall(f"t{n}", "meet", {"number": n}) for n in range(AT_ONCE_MAX)]
    harness, _ = opened([meet], calls, "ok")
    assert harness.run("go", conversation="c1").reply == "ok"
    expected = [ToolResult(f"t{n}", str(n)) for n in range(AT_ONCE_MAX)]
    assert stored_results(harness) == expected
    assert sorted(order) == list(range(AT_ONCE_MAX))


def test_parallel_calls_stay_within_the_concurrency_limit(opened: Opened) -> None:
    running = most = 0

    @tool(only_reads=True)
    async def count() -> None:
        """Counts."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1

    calls = [ToolCall(f"t{n}", "count", {}) for n in range(3 * AT_ONCE_MAX)]
    harness, _ = opened([count], calls, "ok")
    harness.run("go", conversation="c1")
    assert 1 < most <= AT_ONCE_MAX
    assert len(stored_results(harness)) == 3 * AT_ONCE_MAX


def test_a_call_that_may_write_runs_alone_and_in_order(opened: Opened) -> None:
    inside: list[str] = []
    log: list[list[str]] = []

    async def noted(name: str) -> str:
        inside.append(name)
        for _ in range(20):
            await asyncio.sleep(0)
        log.append(list(inside))
        inside.remove(name)
        return name

    @tool(only_reads=True)
    async def look(name: str) -> str:
        """Reads."""
        return await noted(name)

    @tool
    async def change(name: str) -> str:
        """Writes."""
        return await noted(name)

    plan = [("look", "a"), ("look", "b"), ("change", "c"), ("change", "d"), ("look", "e")]
    calls = [ToolCall(name, kind, {"name": name}) for kind, name in plan]
    harness, _ = opened([look, change], calls, "ok")
    harness.run("go", conversation="c1")
    assert log[2:] == [["c"], ["d"], ["e"]]
    assert log[0] == ["a", "b"]
    assert [result.call_id for result in stored_results(harness)] == list("abcde")


def test_a_read_after_a_write_in_the_same_reply_returns_the_written_text(opened: Opened) -> None:
    calls = [
        ToolCall("t1", "read", {"path": "MEMORY.md"}),
        ToolCall("t2", "write", {"path": "new.md", "content": "fresh\n"}),
        ToolCall("t3", "read", {"path": "new.md"}),
    ]
    harness, _ = opened([], calls, "ok")
    harness.run("go", conversation="c1")
    assert "fresh" in stored_results(harness)[2].text


def test_each_stored_result_marks_as_read_only_the_file_of_its_own_call(opened: Opened) -> None:
    """A file counts as read when its text is stored, not when a neighbour's is."""
    calls = [ToolCall(path, "read", {"path": path}) for path in ("MEMORY.md", "TASKS.md")]
    harness, _ = opened([], calls, "ok")
    harness.run("go", conversation="c1")
    transcript = harness.conversations.transcript(harness.conversation("c1"))
    seen = [[key.split("/")[-1] for key in entry.seen] for entry in transcript.entries(3, 4)]
    assert seen == [["MEMORY.md"], ["TASKS.md"]]


def test_a_call_that_crashes_cancels_the_parallel_calls_and_the_turn(opened: Opened) -> None:
    class Worse(BaseException):
        pass

    cancelled: list[bool] = []

    @tool(only_reads=True)
    async def wait() -> None:
        """Waits."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    @tool(only_reads=True)
    async def burst() -> None:
        """Bursts."""
        raise Worse

    calls = [ToolCall("t1", "wait", {}), ToolCall("t2", "burst", {})]
    harness, _ = opened([wait, burst], calls, "never")
    with pytest.raises(Worse):
        harness.run("go", conversation="c1")
    assert cancelled == [True]


def test_bash_commands_run_in_parallel_only_in_a_read_only_sandbox() -> None:
    with reachable_directory() as place:
        model = ScriptedModel("ok")
        with Harness.open(place / "home", model=model) as harness:
            if not harness.confinement().works:
                pytest.skip("no sandbox on this machine")
            calls = [ToolCall(f"t{n}", "bash", {"command": "true"}) for n in range(3)]
            rounds: list[int] = []
            for mode in ("rw", "ro"):
                harness.rooms.sandboxes.patch("default", {"config": {"mode": mode}})
                rounds.append(len(rounds_of(harness, calls)))
    assert rounds == [3, 1]


def rounds_of(harness: Harness, calls: list[ToolCall]) -> list[list[ToolCall]]:
    from harness.bootstrap.services.builtin_tools import TOOLS
    from harness.tools.port import Toolset
    from harness.tools.tool_context import ToolContext
    from workspaces.revision import Author

    mounts = harness.agents.bindings(harness.agents.get("assistant"))
    desk = ToolContext(
        mounts, lambda _: Author("a", "b", "turn"), programs=harness.house.programs()
    )
    return Toolset(TOOLS, desk).rounds(calls)
