"""The tools `glob` and `grep`: those of a turn, on one workspace."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import Field

from harness.mcp.tool import (
    ITEMS_BYTES_MAX,
    READS,
    McpCall,
    McpTool,
    ToolInput,
    ToolOutput,
    cut,
)
from harness.messages.message import ToolCall
from harness.tools.files import glob, grep
from harness.tools.port import AnyTool


class GlobArguments(ToolInput):
    pattern: Annotated[str, Field(min_length=1)]
    path: str | None = None
    workspace: str | None = None


class GrepArguments(ToolInput):
    pattern: Annotated[str, Field(min_length=1, max_length=10_000)]
    path: str | None = None
    mode: Literal["content", "files", "count"] = "content"
    workspace: str | None = None


class FoundOutput(ToolOutput):
    found: str
    """One result a line."""


def _glob(arguments: GlobArguments, call: McpCall) -> FoundOutput:
    return _answer(glob.GLOB, arguments, call)


def _grep(arguments: GrepArguments, call: McpCall) -> FoundOutput:
    return _answer(grep.GREP, arguments, call)


def _answer(tool: AnyTool, arguments: GlobArguments | GrepArguments, call: McpCall) -> FoundOutput:
    context = call.caller.tool_context(arguments.workspace)
    stated = arguments.model_dump(exclude={"workspace"}, exclude_none=True)
    answer = asyncio.run(tool.answer(ToolCall("", tool.name, stated), context))
    return FoundOutput(found=cut(answer, ITEMS_BYTES_MAX))


def _text(output: FoundOutput) -> str:
    return output.found


GLOB = McpTool(
    "glob",
    "Find files of memory",
    input=GlobArguments,
    output=FoundOutput,
    run=_glob,
    text=_text,
    hints=READS,
)
GREP = McpTool(
    "grep",
    "Search files of memory",
    input=GrepArguments,
    output=FoundOutput,
    run=_grep,
    text=_text,
    hints=READS,
)
