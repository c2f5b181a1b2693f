"""The port of tools, and the table that turns what goes wrong in one into words for the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, cast

from harness.agents.mounts import Mount
from harness.context.repair import sound
from harness.messages.client_tool import ClientTool
from harness.messages.message import INVALID_JSON, ToolCall, ToolResult
from harness.messages.model_request import ToolSpec
from harness.messages.pending_call import RequiredAnswer
from harness.messages.progress import Emit, ToolEnded, ToolStarted
from harness.runtime.async_bridge import completed, run_in_new_thread
from harness.runtime.templates import render
from harness.tools.tool_context import ToolContext, ToolEffects
from workspaces.errors import Failure
from workspaces.validation import StrictModel, nearest, parse

AT_ONCE_MAX = 4
"""Calls of one reply: each takes a thread, of which a loop has five on the smallest machine, and one of them
must be left for the signs of life."""

SPECS_MAX = 1_000
"""Of tools with the names of mounts; each is a few hundred bytes."""

I = TypeVar("I", bound=StrictModel)  # noqa: E741 - the input of a tool


def _any_mount(mount: Mount, desk: ToolContext) -> bool:
    del mount, desk
    return True


def _never(given: Any, desk: ToolContext) -> None:
    del given, desk


class AnyTool(Protocol):
    """What an agent can call. `answer` raises Failure; everything else raises nothing."""

    @property
    def name(self) -> str: ...
    def spec(self, desk: ToolContext) -> ToolSpec: ...
    def is_offered(self, desk: ToolContext) -> bool: ...
    def asked(self, call: ToolCall, desk: ToolContext) -> RequiredAnswer | None:
        """Whether somebody must allow the call before it is run."""
        ...

    def may_write(self, call: ToolCall, desk: ToolContext) -> bool:
        """Whether it must keep its place among the calls of a reply."""
        ...

    async def answer(self, call: ToolCall, desk: ToolContext) -> str: ...


@dataclass(frozen=True, slots=True)
class Tool(Generic[I]):
    name: str
    input: type[I]
    run: (
        Callable[[I, ToolContext, str], str]
        | Callable[[I, ToolContext, str], Coroutine[Any, Any, str]]
    )
    """The answer for the model, from the input, the desk and the call's id. Raises Failure. What runs a
    program is a coroutine; everything else is called in a thread."""
    is_writing: bool
    suits: Callable[[Mount, ToolContext], bool] = _any_mount
    """Which mounts it can be used on; without any it is not offered."""
    asks: Callable[[I, ToolContext], Mount | None] = _never
    """The mount for which somebody must allow the call first. Raises Failure where the call is no use."""
    writes: Callable[[I, ToolContext], bool] | None = None
    """Of a tool that writes only with some inputs: whether it does with this one."""

    def spec(self, desk: ToolContext) -> ToolSpec:
        suited = [mount.name for mount in desk.mounts if self.suits(mount, desk)]
        return _spec(self.name, self.input, tuple(suited) if len(desk.mounts) > 1 else ())

    def is_offered(self, desk: ToolContext) -> bool:
        suited = [mount for mount in desk.mounts if self.suits(mount, desk)]
        return any(mount.is_writable or not self.is_writing for mount in suited)

    def asked(self, call: ToolCall, desk: ToolContext) -> RequiredAnswer | None:
        """What cannot be done anyway is not asked about: its error is answer enough."""
        try:
            mount = self.asks(parse(self.input, call.input), desk)
        except Failure:
            return None
        return RequiredAnswer(call.id, "approval", mount.name) if mount else None

    def may_write(self, call: ToolCall, desk: ToolContext) -> bool:
        if self.writes is None:
            return self.is_writing
        try:
            return self.writes(parse(self.input, call.input), desk)
        except Failure:
            return False

    async def answer(self, call: ToolCall, desk: ToolContext) -> str:
        given = parse(self.input, call.input)
        if inspect.iscoroutinefunction(self.run):
            return await self.run(given, desk, call.id)
        return await run_in_new_thread(  # it may wait for whoever writes to the workspace
            cast("Callable[[I, ToolContext, str], str]", self.run), given, desk, call.id
        )


class Toolset:
    """The tools of one turn."""

    def __init__(
        self,
        tools: Sequence[AnyTool],
        desk: ToolContext,
        client: Sequence[ClientTool] = (),
        *,
        first: Callable[[], None] | None = None,
    ) -> None:
        """`client` are those that the client runs; of two of a name the last one counts. `first` is done
        before any of the others is run."""
        self._first = first
        self._specs: tuple[ToolSpec, ...] | None = None
        self._tools = {tool.name: tool for tool in tools if tool.is_offered(desk)}
        known = {tool.name for tool in tools}
        self._client = {tool.name: tool for tool in client if tool.name not in known}
        self.desk = desk

    def specs(self) -> tuple[ToolSpec, ...]:
        """The same at every step: what is mounted stays so for the turn."""
        if self._specs is None:
            own = tuple(tool.spec(self.desk) for tool in self._tools.values())
            self._specs = (*own, *(tool.spec() for tool in self._client.values()))
        return self._specs

    def asks(self, calls: Sequence[ToolCall]) -> tuple[RequiredAnswer, ...]:
        """Those that must be allowed, or made by the client, before any of them is run."""
        return tuple(asked for call in calls if (asked := self._asked(call)) is not None)

    def _asked(self, call: ToolCall) -> RequiredAnswer | None:
        if INVALID_JSON in call.input:
            return None
        if call.name in self._client:
            return RequiredAnswer(call.id, "result")
        tool = self._tools.get(call.name)
        return tool.asked(call, self.desk) if tool else None

    def may_write(self, call: ToolCall) -> bool:
        """Whether it may do more than read: then it keeps its place, and what came of it is stored before
        anything else is done."""
        tool = self._tools.get(call.name)
        if tool is None or INVALID_JSON in call.input:
            return False
        return tool.may_write(call, self.desk)

    def rounds(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """The calls in their order: neighbours that only read are a round, run together; one that may
        write is a round of its own, so that what comes after it finds what it did."""
        rounds: list[list[ToolCall]] = []
        is_open = False
        for call in calls:
            reads = not self.may_write(call)
            if reads and is_open and len(rounds[-1]) < AT_ONCE_MAX:
                rounds[-1].append(call)
            else:
                rounds.append([call])
            is_open = reads
        return rounds

    async def run_together(
        self, calls: Sequence[ToolCall], emit: Emit
    ) -> list[tuple[ToolResult, ToolEffects]]:
        """The results of a round in the order of its calls, each with what it brought itself."""
        await self._begin()
        if len(calls) == 1:
            return [await self._run_aside(calls[0], emit)]
        tasks = [asyncio.create_task(self._run_aside(call, emit)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        """A failure is a result too."""
        await self._begin()
        return await self._run(call, self.desk, emit)

    async def _begin(self) -> None:
        if self._first is not None:
            await completed(run_in_new_thread(self._first))
            self._first = None

    async def _run_aside(self, call: ToolCall, emit: Emit) -> tuple[ToolResult, ToolEffects]:
        desk = self.desk.fork()
        result = await self._run(call, desk, emit)
        return result, desk.drain_effects()

    async def _run(self, call: ToolCall, desk: ToolContext, emit: Emit) -> ToolResult:
        emit(ToolStarted(call))
        result = await self._result(call, desk)
        result = replace(result, text=sound(result.text))  # an error repeats what the model wrote
        emit(ToolEnded(call, result))
        return result

    async def _result(self, call: ToolCall, desk: ToolContext) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = [*self._tools, *self._client]
            near = nearest(call.name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
            return ToolResult(call.id, f"There is no tool {call.name!r}; {hint}", is_error=True)
        if INVALID_JSON in call.input:
            return ToolResult(call.id, _NO_OBJECT, is_error=True)
        try:
            return ToolResult(call.id, await tool.answer(call, desk))
        except Failure as failure:
            return ToolResult(call.id, as_text(failure), is_error=True)


_NO_OBJECT = "Not done: the input is not a JSON object. Nothing was changed. Send it again as one."


def as_text(failure: Failure) -> str:
    """What happened, and what to try."""
    text = f"Not done: {failure}."
    if not failure.remedy:
        return text
    end = "" if failure.remedy.endswith("?") else "."
    return f"{text} {failure.remedy[:1].upper()}{failure.remedy[1:]}{end}"


@lru_cache(maxsize=SPECS_MAX)
def _spec(name: str, shape: type[StrictModel], workspaces: tuple[str, ...]) -> ToolSpec:
    """It is asked for at every turn, and takes longer to make than all else that a question is put together
    from."""
    return ToolSpec(name, render(f"tools/{name}.md"), _schema(shape, workspaces))


def _schema(shape: type[StrictModel], workspaces: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of the input; `workspace` stands in it only where there is a choice."""
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
