"""Tools of one's own: a Python function that an agent may call.

Its name, its docstring and the types of its parameters say what a model must know; what it returns, or
raises, is what the model reads.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from harness.messages.client_tool import DESCRIPTION_CHARACTERS_MAX, NAME_PATTERN
from harness.messages.message import ToolCall
from harness.messages.model_request import ToolSpec
from harness.messages.pending_call import RequiredAnswer
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from harness.tools.stored_results import SHOWN_CHARACTERS_MAX
from harness.tools.tool_context import ToolContext
from workspaces.errors import Failure, Refused
from workspaces.storage.records import JsonObject
from workspaces.validation import rule_of


class ToolFailed(Failure):
    """A function of somebody else's raised: the model is told what."""

    code = "tool_failed"


@dataclass(frozen=True, slots=True)
class CustomTool:
    """A function as a tool. Called from Python it is the function."""

    name: str
    description: str
    input: type[BaseModel]
    function: Callable[..., Any]
    only_reads: bool
    """Then it may run beside other calls of the same reply."""
    asks: bool
    """Whether somebody must allow each call first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def schema(self) -> JsonObject:
        """JSON Schema of the input."""
        return cast("JsonObject", _untitled(self.input.model_json_schema()))

    def spec(self, desk: ToolContext) -> ToolSpec:
        del desk
        return ToolSpec(self.name, self.description, self.schema)

    def is_offered(self, desk: ToolContext) -> bool:
        del desk
        return True

    def asked(self, call: ToolCall, desk: ToolContext) -> RequiredAnswer | None:
        del desk
        try:
            self._given(call)
        except Refused:  # its error is answer enough
            return None
        return RequiredAnswer(call.id, "approval") if self.asks else None

    def may_write(self, call: ToolCall, desk: ToolContext) -> bool:
        del call, desk
        return not self.only_reads

    async def answer(self, call: ToolCall, desk: ToolContext) -> str:
        text = await self.said(call)
        if desk.results is None:
            return text[:SHOWN_CHARACTERS_MAX]
        return await run_in_thread(desk.results.shown, call.id, text)

    async def said(self, call: ToolCall) -> str:
        """What it returns, as text. Raises Failure."""
        given = self._given(call)
        try:
            if inspect.iscoroutinefunction(self.function):
                said = await self.function(**given)
            else:
                said = await run_in_new_thread(self.function, **given)
            return _text(said)
        except Failure:
            raise
        except (Exception, SystemExit) as problem:  # the second is how programs give up
            told = f"{self.name} failed: {type(problem).__name__}: {problem}"
            raise ToolFailed(told[:SHOWN_CHARACTERS_MAX]) from problem

    def _given(self, call: ToolCall) -> dict[str, Any]:
        try:
            given = self.input.model_validate(call.input)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "input"
            if first["type"] == "missing":
                raise Refused(field, None, "is required") from error
            raise Refused(field, first["input"], rule_of(first["msg"])) from error
        return {name: getattr(given, name) for name in self.input.model_fields}


@overload
def tool(function: Callable[..., Any], /) -> CustomTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    only_reads: bool = False,
    asks: bool = False,
) -> Callable[[Callable[..., Any]], CustomTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    only_reads: bool = False,
    asks: bool = False,
) -> CustomTool | Callable[[Callable[..., Any]], CustomTool]:
    """A function as a tool for agents, sync or async: `@tool`, or `@tool(only_reads=True)`.

    `only_reads`: it changes nothing, and may run beside other calls. `asks`: somebody must allow each call.
    """

    def made(function: Callable[..., Any]) -> CustomTool:
        called = name or function.__name__
        told = description or inspect.getdoc(function) or ""
        _check(called, told)
        return CustomTool(called, told, _input(called, function), function, only_reads, asks)

    return made if function is None else made(function)


def custom_tools(
    stated: Iterable[CustomTool | Callable[..., Any]], taken: Iterable[str]
) -> tuple[CustomTool, ...]:
    """Refused for a name that is taken, and for a function that cannot be called by a model."""
    tools = tuple(one if isinstance(one, CustomTool) else tool(one) for one in stated)
    names = set(taken)
    for one in tools:
        if one.name in names:
            raise Refused("tools", one.name, "is the name of another tool")
        names.add(one.name)
    return tools


def _check(name: str, description: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        rule = f"cannot be the name of a tool: it must match {NAME_PATTERN}"
        raise Refused("name", name, rule, remedy="pass name=")
    if not 1 <= len(description) <= DESCRIPTION_CHARACTERS_MAX:
        rule = (
            f"needs a docstring of 1 to {DESCRIPTION_CHARACTERS_MAX:,} characters: a model reads it"
        )
        raise Refused("description", name, rule)


def _input(name: str, function: Callable[..., Any]) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            rule = f"cannot be a parameter of the tool {name!r}: a model passes each by its name"
            raise Refused("parameter", str(parameter), rule)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints.get(parameter.name, Any), default)
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _text(said: object) -> str:
    if isinstance(said, str):
        text = said
    elif isinstance(said, BaseModel):
        text = said.model_dump_json()
    else:
        text = "(done)" if said is None else json.dumps(said, ensure_ascii=False, default=str)
    return text.encode(errors="replace").decode() or "(nothing)"


def _untitled(schema: object) -> object:
    """Pydantic's titles say the names once more."""
    if isinstance(schema, dict):
        stated = cast("dict[str, object]", schema)
        return {
            key: _untitled(value)
            for key, value in stated.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_untitled(one) for one in cast("list[object]", schema)]
    return schema
