"""The tool `recall_at`: recall over memory as it was."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput
from harness.mcp.tools.files.recall import RecallOutput, hits_text, recall_output
from harness.memory.recall import CutMode, recall, since_of
from workspaces.errors import NotFound
from workspaces.history.history import LOG_ENTRIES_MAX, View
from workspaces.search.kind import LIMIT_MAX, QUERY_CHARACTERS_MAX
from workspaces.workspace.workspace import Workspace

REVISION = re.compile(r"[0-9a-f]{7,40}")
DAY = "2026-01-31"


class RecallAtArguments(ToolInput):
    query: Annotated[str, Field(max_length=QUERY_CHARACTERS_MAX)]
    at: Annotated[str, Field(min_length=1, max_length=64)]
    """A date, a date with time, or a revision."""
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10
    workspace: str | None = None
    cut: CutMode = "auto"


def view_at(workspace: Workspace, at: str) -> View:
    """Return the revision that was the newest at this time. A date means the end of its day.

    Raises: NotFound if there was none; Refused if the text is no date, time or revision.
    """
    if REVISION.fullmatch(at):
        found = workspace.history.resolve(at)
        if found is not None:
            return found
    latest = since_of(f"{at}T23:59:59.999999" if len(at) == len(DAY) else at)
    for revision in workspace.log(limit=LOG_ENTRIES_MAX):
        if revision.at <= latest:
            return revision.id
    raise NotFound("revision at that time", at, remedy="name a later time")


def _recall_at(arguments: RecallAtArguments, call: McpCall) -> RecallOutput:
    workspace = call.caller.workspace(arguments.workspace)
    workspace.edits.commit()
    view = view_at(workspace, arguments.at)
    places = [(workspace.record.name, workspace)]
    hits = recall(places, arguments.query, limit=arguments.limit, view=view)
    return recall_output(hits, arguments.query, arguments.cut)


RECALL_AT = McpTool(
    "recall_at",
    "Recall what memory said then",
    input=RecallAtArguments,
    output=RecallOutput,
    run=_recall_at,
    text=hits_text,
    hints=READS,
)
