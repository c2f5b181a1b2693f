"""The tools of results: `submit_result` ends a run, `get_my_decisions` lists what an agent decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from harness.messages.message import ToolCall
from harness.messages.model_request import ToolSpec
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.templates import render
from harness.tools.port import FreeTool
from harness.tools.tool_context import ToolContext
from workspaces.revision import Author
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel, parse

SUBMIT = "submit_result"
LIST = "get_my_decisions"

LISTED, LISTED_MAX = 5, 20
"""Decisions that are listed unless the caller says how many, and at most."""


@dataclass(frozen=True, slots=True)
class SubmitResult(FreeTool):
    """The tool that ends a run with a result. `keep` stores an accepted result, or raises Failure."""

    title: str
    schema: JsonObject
    check: Callable[[Mapping[str, Any]], JsonObject]
    keep: Callable[[JsonObject, Author], str]
    name: str = SUBMIT
    ends_turn: bool = True

    def spec(self, context: ToolContext) -> ToolSpec:
        del context
        return ToolSpec(self.name, render("tools/submit_result.md", title=self.title), self.schema)

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        result = self.check(call.input)
        return await run_in_new_thread(self.keep, result, context.author(call.id))


class _ListInput(StrictModel):
    limit: Annotated[int, Field(ge=1, le=LISTED_MAX)] = LISTED


@dataclass(frozen=True, slots=True)
class GetMyDecisions(FreeTool):
    """The tool that lists an agent's own decisions."""

    read: Callable[[int], str]
    name: str = LIST
    is_writing: ClassVar[bool] = False

    def spec(self, context: ToolContext) -> ToolSpec:
        del context
        limit = {"type": "integer", "minimum": 1, "maximum": LISTED_MAX, "default": LISTED}
        schema = {
            "type": "object",
            "properties": {"limit": limit},
            "additionalProperties": False,
        }
        return ToolSpec(self.name, render("tools/get_my_decisions.md"), schema)

    async def answer(self, call: ToolCall, context: ToolContext) -> str:
        del context
        return await run_in_new_thread(self.read, parse(_ListInput, call.input).limit)
