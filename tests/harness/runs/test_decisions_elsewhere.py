"""Decisions of other machines that share files and no records: shown, resolved and examined again here."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from harness.runs.run import Run
from tests.harness.laptops import Laptop
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.errors import NotFound
from workspaces.home.workspaces import private_to_agent


@pytest.fixture
def laptops(tmp_path: Path) -> tuple[Laptop, Laptop]:
    prefix, clock = MemoryPrefix(), ManualClock()
    one = Laptop(tmp_path / "one", prefix, clock, joins=False)
    one.harness.agents.patch("assistant", {"config": {"card": "decision"}})
    one.sync()
    two = Laptop(tmp_path / "two", prefix, clock)
    two.attach("notes")
    return one, two


def decided(laptop: Laptop, prompt: str = "WAIT for tea") -> Run:
    """A run that the demo model ends with a decision."""
    run = laptop.harness.finish_run(laptop.harness.runs.start("assistant", prompt).id).run
    assert run.status == "succeeded"
    laptop.sync()
    return run


def folder(laptop: Laptop) -> Path:
    agent = laptop.harness.agents.get("assistant")
    workspace = laptop.workspaces.private(private_to_agent(agent.id), create=False)
    assert workspace is not None
    return workspace.root / "decisions"


def test_a_decision_made_elsewhere_is_listed_resolved_and_examined_again_here(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    run = decided(one)
    two.sync()
    decisions = two.harness.rooms.decisions
    (listed,) = decisions.list(run.agent_id)
    original = one.harness.rooms.decisions.get(run.id)
    assert (listed.run.id, listed.decision) == (run.id, original.decision)
    assert listed.run.created_at == run.created_at
    assert decisions.told(run.agent_id) == f"just now · {original.decision.line}"
    (file,) = folder(two).iterdir()
    before = file.read_bytes()
    assert before == next(folder(one).iterdir()).read_bytes()
    noted = decisions.set_outcome(run.id, "right", {"gain": 3}, "active")
    assert (noted.outcome, noted.resolution_status) == ("right", "active")
    child = two.harness.finish_run(two.harness.runs.re_examine(run.id).id).run
    assert (child.status, child.parent_id) == ("succeeded", run.id)
    assert decisions.get(run.id).conviction is not None
    assert [view.run.id for view in two.harness.runs.re_examinations(run.id)] == [child.id]
    assert file.read_bytes() == before
    two.sync()
    one.sync()
    (log,) = folder(one).glob("*.log.md")
    assert "outcome: right (active)" in log.read_text()
    assert f"re-examined by {child.id}" in log.read_text()


def test_one_is_found_by_its_run_alone_and_is_recorded_once(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    run = decided(one)
    two.sync()
    view = two.harness.runs.get(run.id).as_json()
    assert (view["status"], view["result"]["line"]) == ("succeeded", run.reply)
    assert view["prompt"] == "" and view["usage"] is None
    two.again()
    assert [one.run.id for one in two.harness.runs.list("assistant")] == [run.id]
    with pytest.raises(NotFound):
        two.harness.runs.get("run_" + "0" * 24)


def test_a_persons_edit_before_it_came_here_changes_no_answer(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    run = decided(one)
    (file,) = folder(one).iterdir()
    file.write_text(file.read_text().replace("WAIT for tea", "GO for coffee"))
    one.sync()
    two.sync()
    (listed,) = two.harness.rooms.decisions.list(run.agent_id)
    assert listed.decision.data["verdict"] == "WAIT for tea"
    workspace = two.workspaces.private(private_to_agent(run.agent_id), create=False)
    assert workspace is not None
    assert [(one.path, one.kind) for one in workspace.edits.problems()] == [
        (f"decisions/{file.name}", "edited")
    ]


def test_the_decision_of_a_chain_brings_its_agents_and_its_task(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    one.harness.agents.create("finder")
    step = one.harness.run_chain(["finder", "assistant"], "look at WAIT").steps[-1].run
    assert step is not None and step.status == "succeeded"
    one.sync()
    two.sync()
    child = two.harness.finish_run(two.harness.runs.re_examine(step.id).id).run
    assert (child.status, child.step) == ("succeeded", 1)
    chain = two.harness.rooms.chains.get(str(child.chain_id))
    assert (chain.chain.status, chain.chain.task) == ("succeeded", "look at WAIT")


def test_a_file_of_that_name_that_is_no_decision_is_left_alone(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    run = decided(one)
    (file,) = folder(one).iterdir()
    other = "run_" + "a" * 24
    for text in ("not a decision\n", file.read_text(), "---\ncard: [1]\n---\n", "---\nx\n---\n"):
        (folder(one) / f"2026-01-01-{other}.md").write_text(text)
        one.harness.rooms.decisions.adopt(run.agent_id)
        with pytest.raises(NotFound):
            one.harness.runs.get(other)
    assert len(one.harness.rooms.decisions.list(run.agent_id)) == 1
    del two


def test_a_model_makes_no_decision_with_its_tools(laptops: tuple[Laptop, Laptop]) -> None:
    one, two = laptops
    run = decided(one)
    (file,) = folder(one).iterdir()
    forged = file.name.replace(run.id, "run_" + "f" * 24)
    config = {"private": "rw", "card": None}
    one.harness.agents.patch("assistant", {"config": config})
    write = {"workspace": "_agent", "path": f"decisions/{forged}", "content": file.read_text()}
    model = ScriptedModel([ToolCall("w1", "write", write)], "done")
    one.again(model)
    one.harness.run("make one up")
    assert [one.name for one in folder(one).iterdir()] == [file.name]
    told = getattr(model.requests[-1].messages[-1].parts[0], "text", "")
    assert "made by its run alone" in told
    one.sync()
    two.sync()
    assert len(two.harness.rooms.decisions.list(run.agent_id)) == 1
