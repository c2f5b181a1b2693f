"""Custom tools: Python functions that a model may call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from harness import Harness, tool
from harness.messages.event import Approval
from harness.messages.message import ToolCall, ToolResult
from harness.messages.model_request import ModelRequest
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.tools.stored_results import SHOWN_CHARACTERS_MAX
from workspaces.errors import Refused

Opened = Callable[..., tuple[Harness, ScriptedModel]]


class Place(BaseModel):
    city: str
    country: str = "AT"


@tool(only_reads=True)
def weather(place: Place, days: Annotated[int, Field(ge=1, le=7)] = 1) -> dict[str, Any]:
    """The weather of the next days."""
    return {"city": place.city, "days": days, "sky": "grün"}


async def order(what: Literal["tea", "coffee"]) -> str:
    """Order something to drink."""
    await asyncio.sleep(0)
    return f"{what} comes"


@tool(asks=True)
def launch() -> None:
    """Launch it."""


@tool
def broken(text: str = "") -> str:
    """It breaks."""
    raise ValueError(f"no {text}\ud800")


@tool
async def leaving() -> None:
    """It gives up."""
    sys.exit("no such option")


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


def results(request: ModelRequest) -> list[ToolResult]:
    return [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]


def test_a_custom_tool_is_described_by_its_signature_and_docstring(opened: Opened) -> None:
    harness, model = opened([weather, order], "ok")
    harness.run("hi")
    specs = {spec.name: spec for spec in model.requests[0].tools}
    assert specs["weather"].description == "The weather of the next days."
    assert specs["weather"].schema == {
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"type": "string", "default": "AT"},
                },
                "required": ["city"],
            }
        },
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
        },
        "required": ["place"],
        "additionalProperties": False,
    }
    assert specs["order"].schema["properties"]["what"]["enum"] == ["tea", "coffee"]


def test_a_custom_tools_return_value_is_the_result_also_when_async(opened: Opened) -> None:
    calls = [
        ToolCall("t1", "weather", {"place": {"city": "Graz"}}),
        ToolCall("t2", "order", {"what": "tea"}),
        ToolCall("t3", "quiet", {}),
    ]

    @tool
    def quiet() -> None:
        """Says nothing."""

    harness, model = opened([weather, order, quiet], calls, "ok")
    assert harness.run("hi").reply == "ok"
    assert results(model.requests[1]) == [
        ToolResult("t1", '{"city": "Graz", "days": 1, "sky": "grün"}'),
        ToolResult("t2", "tea comes"),
        ToolResult("t3", "(done)"),
    ]
    assert weather(Place(city="Graz"))["city"] == "Graz", "it is still the function"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall("t1", "broken", {"text": "luck"}), "broken failed: ValueError: no luck\ufffd"),
        (ToolCall("t1", "broken", {"texts": "luck"}), "texts"),
        (ToolCall("t1", "leaving", {}), "leaving failed: SystemExit: no such option"),
        (ToolCall("t1", "weather", {}), "Not done: place: is required."),
        (
            ToolCall("t1", "weather", {"place": {"city": "Graz"}, "days": 9}),
            "days: 9 should be less",
        ),
        (ToolCall("t1", "weather", {"place": "Graz"}), "place: 'Graz'"),
        (ToolCall("t1", "weather", {"INVALID_JSON": "{"}), "not a JSON object"),
        (ToolCall("t1", "wether", {}), "did you mean 'weather'?"),
    ],
)
def test_an_error_in_a_custom_tool_is_a_result_and_the_turn_continues(
    opened: Opened, call: ToolCall, told: str
) -> None:
    harness, model = opened([weather, broken, leaving], [call], "I see.")
    assert harness.run("hi").reply == "I see."
    (result,) = results(model.requests[1])
    assert result.is_error
    assert told in result.text


def test_a_long_result_of_a_custom_tool_is_shortened_and_can_be_read_whole(opened: Opened) -> None:
    @tool
    def long() -> str:
        """Much."""
        return "x" * (SHOWN_CHARACTERS_MAX + 1_000)

    look = ToolCall("t2", "read_result", {"id": "t1"})
    harness, model = opened([long], [ToolCall("t1", "long", {})], [look], "ok")
    harness.run("hi", conversation="c1")
    (result,) = results(model.requests[1])
    assert len(result.text) < SHOWN_CHARACTERS_MAX + 200
    assert "1,000 characters are left out" in result.text
    assert not results(model.requests[2])[0].is_error


def test_a_custom_tool_that_asks_runs_after_its_approval(opened: Opened) -> None:
    harness, _ = opened([launch], [ToolCall("t1", "launch", {})], "Up.")
    waiting = harness.run("go", conversation="c1")
    assert [(one.id, one.asked.waits_for, one.asked.workspace) for one in waiting.pending] == [
        ("t1", "approval", None)
    ]
    allowed = Approval(call_id="t1", is_allowed=True)
    assert harness.answer(harness.conversation("c1"), allowed).reply == "Up."


def test_tools_of_one_call_are_offered_only_in_its_turn(opened: Opened) -> None:
    harness, model = opened([], "one", "two")
    harness.run("hi", conversation="c1", tools=[weather])
    harness.run("hi", conversation="c1")
    offered = ["weather" in {spec.name for spec in request.tools} for request in model.requests]
    assert offered == [True, False]


def unnamed(*args: str) -> str:
    """Takes anything."""
    return "".join(args)


def silent_one(text: str) -> str:
    return text


def read() -> str:
    """Shadows."""
    return ""


@pytest.mark.parametrize("function", [unnamed, silent_one, read, lambda: "x"])
def test_a_function_without_a_usable_signature_is_refused_as_a_tool(
    opened: Opened, function: Any
) -> None:
    with pytest.raises(Refused):
        opened([function])


def test_two_tools_cannot_share_a_name(opened: Opened) -> None:
    with pytest.raises(Refused):
        opened([weather, tool(name="weather")(order)])
    harness, _ = opened([weather])
    with pytest.raises(Refused):
        harness.run("hi", tools=[weather])
    declared = {"name": "weather", "description": "x", "inputSchema": {"type": "object"}}
    with pytest.raises(Refused):
        harness.agents.patch("assistant", {"config": {"tools": [declared]}})
