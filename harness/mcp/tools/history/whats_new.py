"""The tool `whats_new`: the changes since a time, as chapters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from harness.mcp.tools.history.recall_at import REVISION
from harness.memory.recall import since_of
from harness.presentation.history_view import chapters
from workspaces.history.history import LOG_ENTRIES_MAX
from workspaces.revision import Revision
from workspaces.workspace.workspace import Workspace


class WhatsNewArguments(ToolInput):
    since: Annotated[str, Field(min_length=1, max_length=64)]
    """A date, a date with time, or a revision."""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    workspace: str | None = None


class NewRevision(ToolOutput):
    revision: str
    at: str
    subject: str
    paths: list[str]


class NewChapter(ToolOutput):
    author: str
    account: str
    day: str
    revisions: list[NewRevision]


class WhatsNewOutput(ToolOutput):
    chapters: list[NewChapter]
    left_out: int
    """Older revisions that are not shown."""


PATHS_MAX = 20


def _whats_new(arguments: WhatsNewArguments, call: McpCall) -> WhatsNewOutput:
    workspace = call.caller.workspace(arguments.workspace)
    workspace.edits.commit()
    revisions = _since(workspace, arguments.since)
    asked = fitting([_shown(one) for one in revisions[: arguments.limit]])
    kept = revisions[: len(asked)]
    shown = {one.revision: one for one in asked}
    return WhatsNewOutput(
        chapters=[
            NewChapter(
                author=one.author,
                account=one.account,
                day=one.day,
                revisions=[shown[revision.id] for revision in one.revisions],
            )
            for one in chapters(kept)
        ],
        left_out=len(revisions) - len(kept),
    )


def _since(workspace: Workspace, since: str) -> list[Revision]:
    if REVISION.fullmatch(since):
        known = workspace.history.resolve(since)
        if known is not None:
            return workspace.history.log(since=known, limit=LOG_ENTRIES_MAX)
    begun = since_of(since)
    return [one for one in workspace.log(limit=LOG_ENTRIES_MAX) if one.at >= begun]


def _shown(revision: Revision) -> NewRevision:
    return NewRevision(
        revision=revision.id,
        at=revision.at,
        subject=revision.subject,
        paths=list(revision.paths[:PATHS_MAX]),
    )


def _text(output: WhatsNewOutput) -> str:
    if not output.chapters:
        return "Nothing has changed since then."
    lines: list[str] = []
    for chapter in output.chapters:
        lines.append(f"{chapter.day} · {chapter.author} ({chapter.account})")
        lines += [f"  {one.revision[:8]} {one.subject}" for one in chapter.revisions]
    if output.left_out:
        lines.append(f"({output.left_out} older revisions are left out: name a later `since`)")
    return "\n".join(lines)


WHATS_NEW = McpTool(
    "whats_new",
    "Say what changed",
    input=WhatsNewArguments,
    output=WhatsNewOutput,
    run=_whats_new,
    text=_text,
    hints=READS,
)
