"""The port of tools, and the table that turns what goes wrong in one into words for the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from harness.agent import Mount
from harness.crossing import in_thread
from harness.message import INVALID_JSON, ToolCall, ToolResult
from harness.progress import Emit, ToolEnded, ToolStarted
from harness.request import ToolSpec
from harness.template import render
from harness.tools.desk import Desk
from workspaces.errors import Failure
from workspaces.parse import Shape, nearest, parse

I = TypeVar("I", bound=Shape)  # noqa: E741 - the input of a tool


@dataclass(frozen=True, slots=True)
class Tool(Generic[I]):
    name: str
    input: type[I]
    run: Callable[[I, Desk, str], str]
    """The answer for the model, from the input, the desk and the call's id. Raises Failure."""
    is_writing: bool

    def spec(self, mounts: Sequence[Mount]) -> ToolSpec:
        return ToolSpec(self.name, render(f"tools/{self.name}.md"), _schema(self.input, mounts))

    def answer(self, call: ToolCall, desk: Desk) -> str:
        return self.run(parse(self.input, call.input), desk, call.id)


class Toolset:
    """The tools of one turn."""

    def __init__(self, tools: Sequence[Tool[Any]], desk: Desk) -> None:
        writable = any(mount.is_writable for mount in desk.mounts)
        offered = [tool for tool in tools if writable or not tool.is_writing]
        self._tools = {tool.name: tool for tool in offered if desk.mounts}
        self.desk = desk

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec(self.desk.mounts) for tool in self._tools.values())

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        """A failure is a result too."""
        emit(ToolStarted(call))
        result = await in_thread(self._result, call)
        emit(ToolEnded(call, result))
        return result

    def _result(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            near = nearest(call.name, list(self._tools))
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(self._tools)}"
            return ToolResult(call.id, f"There is no tool {call.name!r}; {hint}", is_error=True)
        if INVALID_JSON in call.input:
            return ToolResult(call.id, _NO_OBJECT, is_error=True)
        try:
            return ToolResult(call.id, tool.answer(call, self.desk))
        except Failure as failure:
            return ToolResult(call.id, as_text(failure), is_error=True)


_NO_OBJECT = "Not done: the input is not a JSON object. Nothing was changed. Send it again as one."


def as_text(failure: Failure) -> str:
    """What happened, and what to try."""
    text = f"Not done: {failure}."
    return f"{text} {failure.remedy[:1].upper()}{failure.remedy[1:]}." if failure.remedy else text


def _schema(shape: type[Shape], mounts: Sequence[Mount]) -> dict[str, Any]:
    """JSON Schema of the input; `workspace` stands in it only where there is a choice."""
    full = shape.model_json_schema(by_alias=True)
    properties = {name: _plain(value) for name, value in full["properties"].items()}
    properties.pop("workspace", None)
    if len(mounts) > 1:
        properties["workspace"] = {"type": "string", "enum": [mount.name for mount in mounts]}
    required = full.get("required", [])
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
