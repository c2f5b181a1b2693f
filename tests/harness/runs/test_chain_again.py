"""The decision of a chain examined again: the whole chain runs, and its last agent alone is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure
from harness.models.scripted import ScriptedModel
from harness.runs.run import Run
from harness.sandboxes.none import NoSandbox
from workspaces.errors import AgentRunning, NotFound

DATA = {"verdict": "WAIT", "reason": "range unresolved"}
REVIEW = {"conviction_score": 35, "notes": "It broke out.", "suggested_action": "REVISE"}
TASK = "look at the range"

_calls = count()


def submits(data: Any) -> list[ToolCall]:
    return [ToolCall(f"s{next(_calls)}", "submit_result", data)]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def harness(home: Path, model: ScriptedModel) -> Iterator[Harness]:
    with Harness.open(home, model=model, sandbox=NoSandbox("not here")) as opened:
        opened.agents.create("finder", workspaces=["notes"], active_memory=True)
        opened.agents.create("judge", card="decision")
        yield opened


def decided(harness: Harness, model: ScriptedModel, *agents: str) -> Run:
    """The run of the last step of a chain that has decided."""
    model.script(*["found: calm" if name == "finder" else submits(DATA) for name in agents])
    step = harness.run_chain(agents, TASK).steps[-1].run
    assert step is not None and step.status == "succeeded"
    model.requests.clear()
    return step


def conviction(harness: Harness, run: Run) -> Any:
    return harness.rooms.decisions.get(run.id).conviction


def test_the_whole_chain_runs_again_and_only_its_last_agent_is_told_of_the_decision(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    memory = harness.runs.memory("finder")
    model.script("found: storm", submits(REVIEW))
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    assert (child.status, child.source, child.parent_id) == ("succeeded", "re_examine", parent.id)
    assert child.agent_id == parent.agent_id and child.chain_id != parent.chain_id
    first, last = (request.messages[-1].text for request in model.requests)
    assert TASK in first and "range unresolved" not in repr(model.requests[0].messages)
    assert len(model.requests[0].messages) == 1  # its active memory is not shown
    assert all(word in last for word in (TASK, "found: storm", "range unresolved"))
    assert "found: calm" not in last
    assert last.index("found: storm") < last.index('<part slot="thesis">')
    assert harness.runs.get(child.id).as_json()["prompt"] == last
    assert harness.runs.memory("finder") == memory  # no pointer moves
    assert conviction(harness, parent)["score"] == 35
    view = harness.rooms.chains.get(str(child.chain_id))
    assert (view.chain.status, view.chain.re_examines) == ("succeeded", parent.id)
    assert [step.run and step.run.source for step in view.steps] == ["chain", "re_examine"]
    assert harness.jobs.list() == []


def test_the_decision_of_a_step_in_the_middle_is_examined_by_the_chain_up_to_it(
    harness: Harness, model: ScriptedModel
) -> None:
    model.script("found: calm", submits(DATA), "written")
    parent = harness.run_chain(["finder", "judge", "finder"], TASK).steps[1].run
    assert parent is not None
    model.script("found: storm", submits(REVIEW))
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    assert (child.status, child.step) == ("succeeded", 1)
    assert len(model.requests) == 5


def test_an_agent_that_occurs_twice_does_its_earlier_step_first(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "judge", "finder", "judge")
    model.script(submits({**DATA, "verdict": "GO"}), "found: storm", submits(REVIEW))
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    assert (child.status, child.step) == ("succeeded", 2)
    assert "GO · range unresolved" in model.requests[-1].messages[-1].text
    assert len(model.requests) == 3


def test_chains_of_the_same_agents_in_another_order_do_not_wait_for_each_other(
    harness: Harness, model: ScriptedModel
) -> None:
    harness.agents.patch("finder", {"config": {"card": "decision", "activeMemory": False}})
    model.script(submits(DATA), submits(DATA), submits(DATA), submits(DATA))
    one = harness.run_chain(["finder", "judge"], TASK).steps[-1].run
    two = harness.run_chain(["judge", "finder"], TASK).steps[-1].run
    assert one is not None and two is not None
    model.script(submits(DATA), submits(REVIEW), submits(DATA), submits(REVIEW))
    children = [harness.runs.re_examine(run.id) for run in (one, two)]
    ended = [harness.finish_run(child.id).run for child in children]
    assert [run.status for run in ended] == ["succeeded", "succeeded"]


def test_a_step_that_fails_fails_the_re_examination_and_gives_no_conviction(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    model.script(ModelFailure("refused", "no", "never"))
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    assert (child.status, child.error and child.error.code) == ("failed", "chain_failed")
    assert harness.rooms.chains.get(str(child.chain_id)).chain.status == "failed"
    assert conviction(harness, parent) is None
    assert len(model.requests) == 1


def test_while_the_steps_run_the_agent_counts_as_running_and_may_be_cancelled(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    tea = ToolCall("w1", "write", {"path": "tea.md", "content": "green"})
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    model.script([tea])
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    assert child.status == "queued"  # its first step waits for an approval
    with pytest.raises(AgentRunning):
        harness.runs.re_examine(parent.id)
    assert harness.rooms.chains.get(str(child.chain_id)).chain.status == "running"
    assert harness.cancel_run(child.id)
    view = harness.rooms.chains.get(str(child.chain_id))
    assert view.chain.status == "cancelled"
    assert [step.status for step in view.steps] == ["cancelled", "cancelled"]
    assert not harness.runs.records.active(parent.agent_id).runs


def test_after_an_approval_the_chain_goes_on_where_it_waited(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    tea = ToolCall("w1", "write", {"path": "tea.md", "content": "green"})
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    model.script([tea], "found: storm", submits(REVIEW))
    child = harness.finish_run(harness.runs.re_examine(parent.id).id).run
    step = harness.rooms.chains.get(str(child.chain_id)).steps[0].run
    assert step is not None
    harness.approve(harness.conversation(str(step.conversation_id)))
    assert harness.finish_run(child.id).run.status == "succeeded"
    assert len(model.requests) == 3


def test_an_interrupted_re_examination_repeats_no_step(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    model.script("found: storm", submits(REVIEW))
    child = harness.runs.re_examine(parent.id, is_attended=False)
    chain = harness.runs.records.chains.find(str(child.chain_id))
    assert chain is not None
    step = harness.runs._step(chain, [])
    harness.finish_run(step.id)  # and then the process died
    harness.run_jobs()
    assert harness.runs.get(child.id).run.status == "succeeded"
    assert len(model.requests) == 2


def test_a_chain_whose_agent_was_deleted_is_not_examined_again(
    harness: Harness, model: ScriptedModel
) -> None:
    parent = decided(harness, model, "finder", "judge")
    harness.deletion.agent("finder")
    with pytest.raises(NotFound):
        harness.runs.re_examine(parent.id)
