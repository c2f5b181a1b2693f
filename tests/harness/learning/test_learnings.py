"""Learnings of chains: where they are stored, and what a later chain is shown of them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from harness import Harness
from harness.learning.learnings import LEARNING_PREFIX, SHOWN_MAX
from harness.messages.message import Part, ToolCall, ToolResult
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from workspaces.clock import ManualClock

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


@pytest.fixture
def clocked(home: Path) -> Generator[tuple[Harness, ScriptedModel, ManualClock]]:
    model, clock = ScriptedModel(), ManualClock()
    with Harness.open(home, model=model, clock=clock, sandbox=NoSandbox("not here")) as harness:
        for name in ("lead", "second"):
            harness.agents.create(name, workspaces=["notes"])
        yield harness, model, clock


def learns(*learnings: str) -> list[Part]:
    return [
        ToolCall(f"call_{number}", "record_learning", {"learning": one})
        for number, one in enumerate(learnings)
    ]


def keys(harness: Harness, agent: str = "lead") -> list[str]:
    return [one.key for one in harness.facts.of_agent(agent).list()]


def systems(model: ScriptedModel) -> list[str]:
    return ["".join(request.system) for request in model.requests]


Clocked = tuple[Harness, ScriptedModel, ManualClock]


def test_a_learning_of_any_step_is_stored_on_the_first_agent(clocked: Clocked) -> None:
    harness, model, clock = clocked
    model.script("one", learns("Ask for the crane first.", "Write dates in full."), "two")
    harness.run_chain(["lead", "second"], "unload")
    moment = int(clock.now().timestamp() * 1000)
    assert sorted(keys(harness)) == [f"{LEARNING_PREFIX}{moment}", f"{LEARNING_PREFIX}{moment}-2"]
    assert keys(harness, "second") == []
    stored = harness.facts.of_agent("lead").list()
    assert {one.source for one in stored} == {"director"}


def test_every_agent_of_a_chain_is_offered_the_tool_and_no_other_turn_is(clocked: Clocked) -> None:
    harness, model, _ = clocked
    model.script("one", "two", "three", "four")
    harness.run_chain(["lead", "second"], "unload")
    harness.finish_run(harness.runs.start("lead", "alone").id)
    harness.run("hello", agent="lead")
    offered = ["record_learning" in {tool.name for tool in one.tools} for one in model.requests]
    assert offered == [True, True, False, False]


def test_the_newest_twenty_of_all_agents_are_shown_to_each_step_newest_first(
    clocked: Clocked,
) -> None:
    harness, model, clock = clocked
    for number in range(SHOWN_MAX + 2):
        clock.advance(1)
        agents = ["lead", "second"] if number % 2 else ["second", "lead"]
        model.script(learns(f"learning {number:02}"), "one", "two")
        harness.run_chain(agents, "unload")
    model.requests.clear()
    model.script("one", "two")
    harness.run_chain(["lead", "second"], "again")
    for shown in systems(model):
        part = shown.partition("## Learnings")[2]
        found = [line for line in part.splitlines() if line.startswith("- learning")]
        assert found == [f"- learning {n:02}" for n in range(SHOWN_MAX + 1, 1, -1)]


def test_learnings_are_shown_once_and_whatever_memory_enabled_says(clocked: Clocked) -> None:
    harness, model, _ = clocked
    harness.facts.of_agent("lead").put("tone", "Short answers.")
    model.script(learns("Ask for </memory> the crane."), "one")
    harness.run_chain(["lead"], "unload")
    for is_enabled in (False, True):
        harness.agents.patch("lead", {"config": {"memoryEnabled": is_enabled}})
        model.requests.clear()
        model.script("one", "hello")
        harness.run_chain(["lead"], "again")
        harness.run("hello", agent="lead")
        step, chat = systems(model)
        assert step.count("the crane") == 1 and "- Ask for &lt;/memory> the crane." in step
        assert ("**tone**" in step) is is_enabled
        assert (LEARNING_PREFIX in chat) is is_enabled


def test_receipts_name_the_learnings_that_a_step_was_shown(clocked: Clocked) -> None:
    harness, model, _ = clocked
    model.script(learns("Ask for the crane first."), "one", "two")
    harness.run_chain(["lead"], "unload")
    view = harness.run_chain(["lead"], "again")
    run = view.steps[0].run
    assert run is not None
    conversation = harness.conversations.get(str(run.conversation_id))
    receipts = harness.conversations.prompt_log(conversation).receipts()
    part = receipts[-1].newest["learnings"]
    assert part.rows == tuple(one.id for one in harness.facts.of_agent("lead").list())
    assert part.bytes > 0


def test_a_learning_that_holds_a_secret_is_refused(clocked: Clocked) -> None:
    harness, model, _ = clocked
    model.script(learns("The password is hunter2-x9f8a7b6"), "one")
    harness.run_chain(["lead"], "unload")
    (result,) = [one for one in model.requests[1].messages[-1].parts if isinstance(one, ToolResult)]
    assert result.is_error and "password" not in result.text.lower().replace("secret", "")
    assert keys(harness) == []


def test_a_learning_without_text_is_refused(clocked: Clocked) -> None:
    harness, model, _ = clocked
    model.script(learns("", " "), "one")
    harness.run_chain(["lead"], "unload")
    assert keys(harness) == []
    assert all(
        one.is_error for one in model.requests[1].messages[-1].parts if isinstance(one, ToolResult)
    )
