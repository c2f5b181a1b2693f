"""The port of tools, and the table that turns what goes wrong in one into words for the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from harness.agent import Mount
from harness.client_tool import ClientTool
from harness.crossing import in_thread
from harness.message import INVALID_JSON, ToolCall, ToolResult
from harness.pending import Asked
from harness.progress import Emit, ToolEnded, ToolStarted
from harness.request import ToolSpec
from harness.template import render
from harness.tools.desk import Desk
from workspaces.errors import Failure
from workspaces.parse import Shape, nearest, parse

SCHEMAS_MAX = 1_000
"""Of tools with the names of mounts; each is a few hundred bytes."""

I = TypeVar("I", bound=Shape)  # noqa: E741 - the input of a tool


def _any_mount(mount: Mount, desk: Desk) -> bool:
    del mount, desk
    return True


def _never(given: Any, desk: Desk) -> None:
    del given, desk


@dataclass(frozen=True, slots=True)
class Tool(Generic[I]):
    name: str
    input: type[I]
    run: Callable[[I, Desk, str], str] | Callable[[I, Desk, str], Coroutine[Any, Any, str]]
    """The answer for the model, from the input, the desk and the call's id. Raises Failure. What runs a
    program is a coroutine; everything else is called in a thread."""
    is_writing: bool
    suits: Callable[[Mount, Desk], bool] = _any_mount
    """Which mounts it can be used on; without any it is not offered."""
    asks: Callable[[I, Desk], Mount | None] = _never
    """The mount for which somebody must allow the call first. Raises Failure where the call is no use."""

    def spec(self, desk: Desk) -> ToolSpec:
        suited = [mount.name for mount in desk.mounts if self.suits(mount, desk)]
        schema = _schema(self.input, tuple(suited) if len(desk.mounts) > 1 else ())
        return ToolSpec(self.name, render(f"tools/{self.name}.md"), schema)

    def is_offered(self, desk: Desk) -> bool:
        suited = [mount for mount in desk.mounts if self.suits(mount, desk)]
        return any(mount.is_writable or not self.is_writing for mount in suited)

    def where_asked(self, call: ToolCall, desk: Desk) -> Mount | None:
        """What cannot be done anyway is not asked about: its error is answer enough."""
        try:
            return self.asks(parse(self.input, call.input), desk)
        except Failure:
            return None

    async def answer(self, call: ToolCall, desk: Desk) -> str:
        given = parse(self.input, call.input)
        if inspect.iscoroutinefunction(self.run):
            return await self.run(given, desk, call.id)
        return await in_thread(
            cast("Callable[[I, Desk, str], str]", self.run), given, desk, call.id
        )


class Toolset:
    """The tools of one turn."""

    def __init__(
        self, tools: Sequence[Tool[Any]], desk: Desk, client: Sequence[ClientTool] = ()
    ) -> None:
        """`client` are those that the client runs; of two of a name the last one counts."""
        self._tools = {tool.name: tool for tool in tools if tool.is_offered(desk)}
        known = {tool.name for tool in tools}
        self._client = {tool.name: tool for tool in client if tool.name not in known}
        self.desk = desk

    def specs(self) -> tuple[ToolSpec, ...]:
        own = tuple(tool.spec(self.desk) for tool in self._tools.values())
        return (*own, *(tool.spec() for tool in self._client.values()))

    def asks(self, calls: Sequence[ToolCall]) -> tuple[Asked, ...]:
        """Those that must be allowed, or made by the client, before any of them is run."""
        return tuple(asked for call in calls if (asked := self._asked(call)) is not None)

    def _asked(self, call: ToolCall) -> Asked | None:
        if INVALID_JSON in call.input:
            return None
        if call.name in self._client:
            return Asked(call.id, "result")
        tool = self._tools.get(call.name)
        mount = tool.where_asked(call, self.desk) if tool else None
        return Asked(call.id, "approval", mount.name) if mount else None

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        """A failure is a result too."""
        emit(ToolStarted(call))
        result = await self._result(call)
        emit(ToolEnded(call, result))
        return result

    async def _result(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = [*self._tools, *self._client]
            near = nearest(call.name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
            return ToolResult(call.id, f"There is no tool {call.name!r}; {hint}", is_error=True)
        if INVALID_JSON in call.input:
            return ToolResult(call.id, _NO_OBJECT, is_error=True)
        try:
            return ToolResult(call.id, await tool.answer(call, self.desk))
        except Failure as failure:
            return ToolResult(call.id, as_text(failure), is_error=True)


_NO_OBJECT = "Not done: the input is not a JSON object. Nothing was changed. Send it again as one."


def as_text(failure: Failure) -> str:
    """What happened, and what to try."""
    text = f"Not done: {failure}."
    return f"{text} {failure.remedy[:1].upper()}{failure.remedy[1:]}." if failure.remedy else text


@lru_cache(maxsize=SCHEMAS_MAX)
def _schema(shape: type[Shape], workspaces: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of the input; `workspace` stands in it only where there is a choice. It is asked for at
    every step, and takes longer to make than all else that a question is put together from."""
    full = shape.model_json_schema(by_alias=True)
    properties = {name: _plain(value) for name, value in full["properties"].items()}
    if properties.pop("workspace", None) and workspaces:
        properties["workspace"] = {"type": "string", "enum": list(workspaces)}
    required = full.get("required", [])
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
