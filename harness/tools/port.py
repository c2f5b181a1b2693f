"""The tool port, and the table that turns a tool's failure into text for the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from harness.agents.mounts import Mount
from harness.context.repair import sound
from harness.messages.client_tool import ClientTool
from harness.messages.marking import MarkText, unmarked
from harness.messages.message import (
    FORBIDDEN_INPUT,
    INVALID_JSON,
    UNUSABLE_INPUTS,
    ToolCall,
    ToolResult,
)
from harness.messages.model_request import ToolSpec
from harness.messages.pending_call import RequiredAnswer
from harness.messages.progress import Emit, ToolEnded, ToolStarted
from harness.runtime.async_bridge import completed, run_in_new_thread, run_in_thread
from harness.runtime.templates import render
from harness.tools.tool_context import ToolContext, ToolEffects
from workspaces.errors import Failure, nearest
from workspaces.validation import StrictModel, parse

AT_ONCE_MAX = 4
"""Calls of one reply that run at the same time. Each takes a thread. A loop has five threads on the smallest
machine, and one of them must stay free for heartbeats."""

SPECS_MAX = 1_000
"""Cached descriptions, by tool and names of mounts; each is a few hundred bytes."""

I = TypeVar("I", bound=StrictModel)  # noqa: E741 - the input of a tool


def _any_mount(mount: Mount, context: ToolContext) -> bool:
    del mount, context
    return True


def _never(arguments: Any, context: ToolContext) -> None:
    del arguments, context


class AnyTool(Protocol):
    """A tool that an agent can call. `answer` raises Failure; the other methods raise nothing."""

    @property
    def name(self) -> str: ...
    def spec(self, context: ToolContext) -> ToolSpec: ...
    def is_offered(self, context: ToolContext) -> bool: ...
    def required_answer(self, call: ToolCall, context: ToolContext) -> RequiredAnswer | None:
        """Return the answer that the call needs before it is run, or None."""
        ...

    def may_write(self, call: ToolCall, context: ToolContext) -> bool:
        """Return True if the call must keep its place among the calls of a reply."""
        ...

    async def answer(self, call: ToolCall, context: ToolContext) -> str: ...


class FreeTool:
    """A tool that is always offered and needs no approval."""

    __slots__ = ()
    is_writing: ClassVar[bool] = True

    def is_offered(self, context: ToolContext) -> bool:
        del context
        return True

    def required_answer(self, call: ToolCall, context: ToolContext) -> RequiredAnswer | None:
        del call, context
        return None

    def may_write(self, call: ToolCall, context: ToolContext) -> bool:
        del call, context
        return self.is_writing


@dataclass(frozen=True, slots=True)
class Tool(Generic[I]):
    name: str
    input: type[I]
    run: (
        Callable[[I, ToolContext, str], str]
        | Callable[[I, ToolContext, str], Coroutine[Any, Any, str]]
    )
    """Returns the answer for the model from the input, the tool context and the call's id. It raises Failure.
    A tool that runs a program is a coroutine; all others are called in a thread."""
    is_writing: bool
    suits: Callable[[Mount, ToolContext], bool] = _any_mount
    """Returns True for a mount that the tool can be used on; one that writes also needs a writable mount.
    Without any such mount it is not offered."""
    asks: Callable[[I, ToolContext], Mount | None] = _never
    """Returns the mount whose use a person must approve first. It raises Failure if the call cannot
    succeed."""
    writes: Callable[[I, ToolContext], bool] | None = None
    """For a tool that writes only with some inputs: returns True if it writes with this one."""

    def spec(self, context: ToolContext) -> ToolSpec:
        names = tuple(mount.name for mount in self._suited(context))
        if len(context.mounts) < 2:
            return spec_of(self.name, self.input, (), False)
        # without a name the default is meant: where the tool cannot use it, a name is required
        return spec_of(self.name, self.input, names, context.default_name not in names)

    def is_offered(self, context: ToolContext) -> bool:
        return bool(self._suited(context))

    def _suited(self, context: ToolContext) -> list[Mount]:
        """Return the mounts that the tool can be used on."""
        return [
            mount
            for mount in context.mounts
            if self.suits(mount, context) and (mount.is_writable or not self.is_writing)
        ]

    def required_answer(self, call: ToolCall, context: ToolContext) -> RequiredAnswer | None:
        """Return the approval that the call needs, or None. A call that must fail needs none: its error
        suffices."""
        try:
            mount = self.asks(parse(self.input, call.input), context)
        except Failure:
            return None
        return RequiredAnswer(call.id, "approval", mount.name) if mount else None

    def may_write(self, call: ToolCall, context: ToolContext) -> bool:
        if self.writes is None:
            return self.is_writing
        try:
            return self.writes(parse(self.input, call.input), context)
        except Failure:
            return False

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        arguments = parse(self.input, call.input)
        if inspect.iscoroutinefunction(self.run):
            return await self.run(arguments, context, call.id)
        return await run_in_new_thread(  # it may wait for another writer of the workspace
            cast("Callable[[I, ToolContext, str], str]", self.run), arguments, context, call.id
        )


class Toolset:
    """The tools of one turn."""

    def __init__(
        self,
        tools: Sequence[AnyTool],
        context: ToolContext,
        client: Sequence[ClientTool] = (),
        *,
        first: Callable[[], None] | None = None,
        mark: MarkText = unmarked,
    ) -> None:
        """Create the toolset. `client` are the client tools; of two with one name the last one counts.
        `first` is called once, before the first tool runs. `mark` is applied to every result."""
        self._first = first
        self._mark = mark
        self._specs: tuple[ToolSpec, ...] | None = None
        self._tools = {tool.name: tool for tool in tools if tool.is_offered(context)}
        known = {tool.name for tool in tools}
        self._client = {tool.name: tool for tool in client if tool.name not in known}
        self.context = context

    @property
    def last_tool(self) -> str | None:
        """The name of the tool that ends the turn, if there is one."""
        return next(
            (n for n, tool in self._tools.items() if getattr(tool, "ends_turn", False)), None
        )

    def only(self, name: str) -> Toolset:
        """Return a toolset that offers one tool alone."""
        return Toolset((self._tools[name],), self.context, first=self._first, mark=self._mark)

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the descriptions of the tools. They are the same at every step: the mounts of a turn never
        change."""
        if self._specs is None:
            own = tuple(tool.spec(self.context) for tool in self._tools.values())
            self._specs = (*own, *(tool.spec() for tool in self._client.values()))
        return self._specs

    def required_answers(self, calls: Sequence[ToolCall]) -> tuple[RequiredAnswer, ...]:
        """Return the answers that are needed before any of the calls is run: approvals, or results of the
        client."""
        return tuple(
            required for call in calls if (required := self._required_answer(call)) is not None
        )

    def _required_answer(self, call: ToolCall) -> RequiredAnswer | None:
        if not UNUSABLE_INPUTS.isdisjoint(call.input):
            return None
        if call.name in self._client:
            return RequiredAnswer(call.id, "result")
        tool = self._tools.get(call.name)
        return tool.required_answer(call, self.context) if tool else None

    def may_write(self, call: ToolCall) -> bool:
        """Return True if the call may change something. Then it keeps its place, and its result is stored
        before the turn continues."""
        tool = self._tools.get(call.name)
        if tool is None or not UNUSABLE_INPUTS.isdisjoint(call.input):
            return False
        return tool.may_write(call, self.context)

    def rounds(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Return the calls in rounds, in their order. Neighbouring calls that only read form a round and run
        together. A call that may write is a round of its own, so that later calls see its effect."""
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
        """Run a round. Return the results in the order of its calls, each with its own effects."""
        await self._begin()
        if len(calls) == 1:
            return [await self._run_forked(calls[0], emit)]
        tasks = [asyncio.create_task(self._run_forked(call, emit)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run(self, call: ToolCall, emit: Emit) -> ToolResult:
        """Run one call. A failure is a result, too."""
        await self._begin()
        return await self._run(call, self.context, emit)

    async def _begin(self) -> None:
        if self._first is not None:
            await completed(run_in_new_thread(self._first))
            self._first = None

    async def _run_forked(self, call: ToolCall, emit: Emit) -> tuple[ToolResult, ToolEffects]:
        context = self.context.fork()
        result = await self._run(call, context, emit)
        return result, context.drain_effects()

    async def _run(self, call: ToolCall, context: ToolContext, emit: Emit) -> ToolResult:
        emit(ToolStarted(call))
        result = await self._result(call, context)
        text = sound(result.text)  # an error may quote the model's text
        result = replace(result, text=await run_in_thread(self._mark, text))
        emit(ToolEnded(call, result))
        return result

    async def _result(self, call: ToolCall, context: ToolContext) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            names = [*self._tools, *self._client]
            near = nearest(call.name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
            return ToolResult(call.id, f"There is no tool {call.name!r}; {hint}", is_error=True)
        if INVALID_JSON in call.input:
            return ToolResult(call.id, _NO_OBJECT, is_error=True)
        if FORBIDDEN_INPUT in call.input:
            return ToolResult(call.id, _FORBIDDEN, is_error=True)
        try:
            return ToolResult(call.id, await tool.answer(call, context))
        except Failure as failure:
            return ToolResult(call.id, as_text(failure), is_error=True)


_NO_OBJECT = "Not done: the input is not a JSON object. Nothing was changed. Send it again as one."
_FORBIDDEN = (
    "Not done: the input held a text that is forbidden or was forgotten. Nothing was changed. Leave that "
    "text out; here a mark stands in its place."
)


def as_text(failure: Failure) -> str:
    """Return the failure as text for the model, with its remedy."""
    text = f"Not done: {str(failure).removesuffix('.')}."
    if not failure.remedy:
        return text
    end = "" if failure.remedy.endswith(("?", ".")) else "."
    return f"{text} {failure.remedy[:1].upper()}{failure.remedy[1:]}{end}"


@lru_cache(maxsize=SPECS_MAX)
def spec_of(
    name: str, input_type: type[StrictModel], workspaces: tuple[str, ...], is_named: bool
) -> ToolSpec:
    """Return the description of a tool. It is cached: every turn needs it, and building it takes longer than
    the rest of the request."""
    return ToolSpec(name, render(f"tools/{name}.md"), _schema(input_type, workspaces, is_named))


def _schema(
    input_type: type[StrictModel], workspaces: tuple[str, ...], is_named: bool
) -> dict[str, Any]:
    """Return the JSON Schema of the input. `workspace` is part of it only if there is a choice.

    `is_named` says that a call must name the workspace.
    """
    full = input_type.model_json_schema(by_alias=True)
    properties = {name: _plain(value) for name, value in full["properties"].items()}
    if properties.pop("workspace", None) and workspaces:
        properties["workspace"] = {"type": "string", "enum": list(workspaces)}
    is_required = is_named and "workspace" in properties
    required = [*full.get("required", []), *(["workspace"] if is_required else [])]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}
