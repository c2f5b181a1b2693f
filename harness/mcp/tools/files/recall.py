"""The tool `recall`: the lines that a question is about."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import APP, READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from harness.memory.recall import (
    EMPTY,
    CutMode,
    Hit,
    age_of,
    answer,
    behind_text,
    recall,
    since_of,
)
from workspaces.search.kind import LIMIT_MAX, QUERY_CHARACTERS_MAX, MemoryKind
from workspaces.search.recall import Scope

CONTENT_CHARACTERS_MAX = 1_500
"""Characters shown of one line; `read` shows the rest."""


class RecallArguments(ToolInput):
    query: Annotated[str, Field(max_length=QUERY_CHARACTERS_MAX)]
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    paths: Annotated[list[str], Field(max_length=20)] = Field(default=[])
    kinds: Annotated[list[MemoryKind], Field(max_length=7)] = Field(default=[])
    since: str | None = None
    by: str | None = None
    workspace: str | None = None
    cut: CutMode = "auto"


class RecallCut(ToolOutput):
    shown: int
    behind: int
    """Lines that were found and fit less."""
    lowest: float
    """The lowest score shown."""


class RecalledLine(ToolOutput):
    workspace: str
    path: str
    line_number: int
    content: str
    score: float
    kind: MemoryKind
    updated_at: str | None
    age_days: int | None
    author: str | None


class RecallOutput(ToolOutput):
    hits: list[RecalledLine]
    left_out: int
    """Further lines that were found and do not fit into the answer."""
    cut: RecallCut | None
    """None without a cut, and if nothing is shown."""
    nothing_known: bool
    """True if no line bears on the question."""


def recall_output(hits: list[Hit], query: str, cut: CutMode) -> RecallOutput:
    found = answer(hits, query, cut)
    lines = [
        RecalledLine(
            workspace=hit.workspace,
            path=hit.line.path,
            line_number=hit.line.line_number,
            content=_cut(hit.line.content),
            score=hit.line.score,
            kind=hit.line.kind,
            updated_at=hit.line.updated_at,
            age_days=hit.line.age_days,
            author=hit.line.author,
        )
        for hit in found.hits
    ]
    kept = fitting(lines)
    return RecallOutput(
        hits=kept,
        left_out=len(lines) - len(kept),
        cut=RecallCut(**found.cut.as_json()) if found.cut else None,
        nothing_known=found.nothing_known,
    )


def hits_text(output: RecallOutput) -> str:
    if not output.hits:
        return EMPTY if output.nothing_known else "There are no lines here."
    lines = [
        f"{hit.path}:{hit.line_number} ({hit.kind}, {age_of(hit.updated_at, hit.age_days)}"
        f"{f', {hit.author}' if hit.author else ''})\n{hit.content}"
        for hit in output.hits
    ]
    left = (
        [f"({output.left_out} more lines are left out: lower `limit`)"] if output.left_out else []
    )
    return "\n".join([*lines, *left, *behind_text(output.cut)])


def _cut(text: str) -> str:
    if len(text) <= CONTENT_CHARACTERS_MAX:
        return text
    return f"{text[:CONTENT_CHARACTERS_MAX]}…"


def _recall(arguments: RecallArguments, call: McpCall) -> RecallOutput:
    workspace = call.caller.workspace(arguments.workspace)
    hits = recall(
        [(workspace.record.name, workspace)],
        arguments.query,
        limit=arguments.limit,
        scope=Scope(
            tuple(arguments.paths),
            tuple(arguments.kinds),
            None if arguments.since is None else since_of(arguments.since),
            arguments.by,
        ),
        on_progress=lambda done, total: call.progress(done, total, "indexing"),
    )
    return recall_output(hits, arguments.query, arguments.cut)


RECALL = McpTool(
    "recall",
    "Recall what memory says",
    input=RecallArguments,
    output=RecallOutput,
    run=_recall,
    text=hits_text,
    hints=READS,
    app=APP,
)
