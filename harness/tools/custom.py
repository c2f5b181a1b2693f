"""Custom tools: a Python function that an agent may call.

The model reads the function's name, its docstring and the types of its parameters. It also reads the value
that the function returns, or the error that it raises.
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
    """A function of the caller raised. The model reads the error."""

    code = "tool_failed"


@dataclass(frozen=True, slots=True)
class CustomTool:
    """A function as a tool. Calling the tool from Python calls the function."""

    name: str
    description: str
    input: type[BaseModel]
    function: Callable[..., Any]
    only_reads: bool
    """True if the function changes nothing: it may run at the same time as other calls of the reply."""
    asks: bool
    """True if a person must approve each call first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def schema(self) -> JsonObject:
        """Return the JSON Schema of the input."""
        return cast("JsonObject", _untitled(self.input.model_json_schema()))

    def spec(self, context: ToolContext) -> ToolSpec:
        del context
        return ToolSpec(self.name, self.description, self.schema)

    def is_offered(self, context: ToolContext) -> bool:
        del context
        return True

    def required_answer(self, call: ToolCall, context: ToolContext) -> RequiredAnswer | None:
        del context
        try:
            self._arguments(call)
        except Refused:  # the call fails anyway: no approval is needed
            return None
        return RequiredAnswer(call.id, "approval") if self.asks else None

    def may_write(self, call: ToolCall, context: ToolContext) -> bool:
        del call, context
        return not self.only_reads

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        text = await self.run(call)
        if context.results is None:
            return text[:SHOWN_CHARACTERS_MAX]
        return await run_in_thread(context.results.shorten, call.id, text)

    async def run(self, call: ToolCall) -> str:
        """Call the function and return its result as text.

        Raises: Failure if the input is invalid or the function fails.
        """
        arguments = self._arguments(call)
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**arguments)
            else:
                result = await run_in_new_thread(self.function, **arguments)
            return _text(result)
        except Failure:
            raise
        except (Exception, SystemExit) as problem:  # programs exit with SystemExit
            message = f"{self.name} failed: {type(problem).__name__}: {problem}"
            raise ToolFailed(message[:SHOWN_CHARACTERS_MAX]) from problem

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        try:
            arguments = self.input.model_validate(call.input)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "input"
            if first["type"] == "missing":
                raise Refused(field, None, "is required") from error
            raise Refused(field, first["input"], rule_of(first["msg"])) from error
        return {name: getattr(arguments, name) for name in self.input.model_fields}


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
    """Return a function as a tool for agents, sync or async: `@tool`, or `@tool(only_reads=True)`.

    `only_reads`: the function changes nothing, so it may run at the same time as other calls. `asks`: a
    person must approve each call.
    """

    def decorate(function: Callable[..., Any]) -> CustomTool:
        tool_name = name or function.__name__
        docstring = description or inspect.getdoc(function) or ""
        _check(tool_name, docstring)
        return CustomTool(
            tool_name, docstring, _input(tool_name, function), function, only_reads, asks
        )

    return decorate if function is None else decorate(function)


def custom_tools(
    functions: Iterable[CustomTool | Callable[..., Any]], taken: Iterable[str]
) -> tuple[CustomTool, ...]:
    """Return the tools for these functions.

    Raises: Refused if a name is taken, or if a model cannot call the function.
    """
    tools = tuple(one if isinstance(one, CustomTool) else tool(one) for one in functions)
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


def _text(result: object) -> str:
    if isinstance(result, str):
        text = result
    elif isinstance(result, BaseModel):
        text = result.model_dump_json()
    else:
        text = "(done)" if result is None else json.dumps(result, ensure_ascii=False, default=str)
    return text.encode(errors="replace").decode() or "(nothing)"


def _untitled(schema: object) -> object:
    """Return the schema without pydantic's titles, which only repeat the names."""
    if isinstance(schema, dict):
        fields = cast("dict[str, object]", schema)
        return {
            key: _untitled(value)
            for key, value in fields.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_untitled(one) for one in cast("list[object]", schema)]
    return schema
