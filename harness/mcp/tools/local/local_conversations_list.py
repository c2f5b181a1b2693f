"""The tool `local_conversations_list`: the conversations of other agents on this machine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from harness.memorize.local.local_message import LocalConversation
from harness.memory.recall import since_of


class LocalConversationsListArguments(ToolInput):
    provider: str | None = None
    """codex, claude-code or claude-desktop."""
    project: Annotated[str, Field(min_length=1)] | None = None
    """Only conversations of this directory and of those below."""
    query: str | None = None
    """A part of the title or of the directory."""
    since: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """A date, or a date with time."""
    limit: Annotated[int, Field(ge=1, le=200)] = 25


class ListedConversation(ToolOutput):
    id: str
    provider: str
    title: str
    project: str | None
    updated_at: str
    parent: str | None
    archived: bool
    metadata_only: bool


class LocalConversationsListOutput(ToolOutput):
    conversations: list[ListedConversation]
    left_out: int
    """Older conversations that are not shown."""


def listed_conversation(one: LocalConversation) -> ListedConversation:
    return ListedConversation.model_validate(one.as_json())


def _list(
    arguments: LocalConversationsListArguments, call: McpCall
) -> LocalConversationsListOutput:
    found = call.caller.local_conversations.list(
        provider=arguments.provider,
        project=arguments.project,
        query=arguments.query,
        since=since_of(arguments.since) if arguments.since is not None else None,
        limit=None,
    )
    shown = fitting([listed_conversation(one) for one in found[: arguments.limit]])
    return LocalConversationsListOutput(conversations=shown, left_out=len(found) - len(shown))


def _text(output: LocalConversationsListOutput) -> str:
    lines = [
        f"{one.id} {one.provider} {one.updated_at[:16]} {one.project or '-'}: {one.title}"
        for one in output.conversations
    ]
    if output.left_out:
        lines.append(f"({output.left_out:,} more are left out: narrow by project, query or since)")
    return "\n".join(lines) or "There are none."


LOCAL_CONVERSATIONS_LIST = McpTool(
    "local_conversations_list",
    "List conversations of other agents",
    input=LocalConversationsListArguments,
    output=LocalConversationsListOutput,
    run=_list,
    text=_text,
    hints=READS,
)
