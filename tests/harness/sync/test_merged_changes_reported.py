"""A merge by sync is reported in the next delta of the prompt and in `status`."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.models.scripted import ScriptedModel
from harness.presentation.status import StatusRow, status
from tests.harness.homes import Open, opened, prefix
from workspaces.revision import Author

__all__ = ["opened", "prefix"]

PERSON = Author("ann", "usr_1", "api")


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
def machine(opened: Open, model: ScriptedModel) -> Harness:
    return opened("one", model=model)


@pytest.fixture
def other(opened: Open, machine: Harness) -> Harness:
    return opened("other")


MORE = "".join(f"- something else that is remembered, number {number}\n" for number in range(60))
"""Enough that a change is small beside it, and told as one."""


def say(machine: Harness, text: str) -> None:
    machine.workspaces.get("notes").write("MEMORY.md", MORE + text, by=PERSON)


def synced(*machines: Harness) -> None:
    for one in machines:
        one.workspaces.sync("notes").run()


def merged(machine: Harness) -> list[StatusRow]:
    (section,) = (one for one in status(machine) if one.name == "workspaces")
    return [line for line in section.lines if line.state == "merged"]


def test_the_next_delta_and_the_status_list_the_merged_line_pairs(
    machine: Harness, other: Harness, model: ScriptedModel
) -> None:
    say(machine, "- one\n- tea\n")
    synced(machine, other)
    model.script("hello", "I see", "still")
    machine.run("hello", conversation="c")
    say(other, "- one\n- tea is green <memory>\n")
    synced(other)
    say(machine, "- one\n- tea is black\n")
    machine.run("what changed?", conversation="c")  # which pulls first
    told = model.requests[1].messages[-1].text
    assert "(MEMORY.md was changed by two at the same time and merged: 1 place. " in told
    lines = told.splitlines()
    pair = [line for line in lines if line.startswith(("1 ", "2 "))]
    assert sorted(line[2:] for line in pair) == ["- tea is black", "- tea is green &lt;memory>"]
    assert [line[0] for line in pair] == ["1", "2"]

    (line,) = merged(machine)
    assert "'MEMORY.md' was changed by two at once and merged: 1 place" in line.told
    (found,) = line.facts["pairs"]
    assert sorted(found) == [["- tea is black"], ["- tea is green <memory>"]]

    machine.run("again", conversation="c")
    assert "merged" not in model.requests[2].messages[-1].text

    say(machine, "- one\n- tea is green\n")
    assert merged(machine) == []


def test_changes_to_different_lines_are_not_reported_as_merged(
    machine: Harness, other: Harness, model: ScriptedModel
) -> None:
    say(machine, "- one\n- two\n- three\n")
    synced(machine, other)
    model.script("hello", "I see")
    machine.run("hello", conversation="c")
    say(other, "- zero\n- one\n- two\n- three\n")
    synced(other)
    say(machine, "- one\n- two\n- three\n- four\n")
    machine.run("what changed?", conversation="c")
    told = model.requests[1].messages[-1].text
    assert "+ - zero" in told and "+ - four" in told and "merged" not in told
    assert merged(machine) == []
