"""The tool `why`: who wrote a line, when, and in which conversation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput
from harness.memorize.memory import MemorizedFact
from harness.memory.facts.fact import is_fact_path
from harness.presentation.history_view import TurnReasons
from harness.tools.tool_context import path_of
from workspaces.errors import NotFound
from workspaces.history.blame import BlamedLine
from workspaces.paths import WorkspacePath
from workspaces.workspace.workspace import Workspace

TEXT_CHARACTERS_MAX = 1_500


class WhyArguments(ToolInput):
    path: str
    line: Annotated[int, Field(ge=1)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    workspace: str | None = None

    @model_validator(mode="after")
    def _names_one_line(self) -> WhyArguments:
        if (self.line is None) == (self.text is None):
            raise ValueError("must name a line by `line` or by `text`, one of them")
        return self


class WhyOutput(ToolOutput):
    path: str
    line_number: int
    text: str
    author: str
    source: str
    at: str
    revision: str
    conversation: str | None
    turn: str | None
    quote: str | None
    """What was said in the conversation, if the caller may see it."""


def _why(arguments: WhyArguments, call: McpCall) -> WhyOutput:
    workspace = call.caller.workspace(arguments.workspace)
    path = path_of(arguments.path)
    workspace.edits.commit()
    line = _line(arguments, workspace.history.blame(path))
    revision = workspace.history.log(start=line.revision, limit=1)[0]
    reasons = TurnReasons(lambda: call.caller.services.conversations)
    memory = _memory(path, workspace, call)
    quote = memory.moments[0].quote if memory is not None and memory.moments else None
    return WhyOutput(
        path=path,
        line_number=line.number,
        text=line.text[:TEXT_CHARACTERS_MAX],
        author=line.author,
        source=revision.trailers.get("Source", "unknown"),
        at=line.at,
        revision=line.revision,
        conversation=line.conversation or (memory.origin.conversation if memory else None),
        turn=line.turn,
        quote=quote or reasons.why(revision),
    )


def _memory(path: WorkspacePath, workspace: Workspace, call: McpCall) -> MemorizedFact | None:
    """Return the memory in this file, if memorize wrote it."""
    if not is_fact_path(path):
        return None
    services = call.caller.services
    facts = services.facts.over(workspace)
    fact = next((one for one in facts.list() if one.path == path), None)
    return None if fact is None else services.memorizer.memories.of_fact(facts, fact)


def _line(arguments: WhyArguments, lines: list[BlamedLine]) -> BlamedLine:
    if arguments.line is not None:
        if arguments.line > len(lines):
            remedy = f"the file has {len(lines)} lines"
            raise NotFound("line", str(arguments.line), remedy=remedy)
        return lines[arguments.line - 1]
    wanted = (arguments.text or "").casefold()
    for line in lines:
        if wanted in line.text.casefold():
            return line
    raise NotFound("text in the file", arguments.text or "", remedy="find it with grep")


def _text(output: WhyOutput) -> str:
    head = f"{output.path}:{output.line_number} {output.text}"
    told = f"written by {output.author} ({output.source}) at {output.at}, revision {output.revision[:8]}"
    lines = [head, told]
    if output.conversation:
        lines.append(f"in conversation {output.conversation}")
    if output.quote:
        lines.append(f"because: {output.quote}")
    return "\n".join(lines)


WHY = McpTool(
    "why",
    "Say who wrote a line, and why",
    input=WhyArguments,
    output=WhyOutput,
    run=_why,
    text=_text,
    hints=READS,
)
