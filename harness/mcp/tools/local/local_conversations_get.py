"""The tool `local_conversations_get`: messages of one conversation of another agent, with positions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.mcp.tool import READS, McpCall, McpTool, ToolInput, ToolOutput, fitting
from harness.mcp.tools.local.local_conversations_list import (
    ListedConversation,
    listed_conversation,
)


class LocalConversationsGetArguments(ToolInput):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    """The conversation's id, or the beginning of it."""
    around: Annotated[int, Field(ge=1)] | None = None
    """Show messages around this position; without it, the newest."""
    limit: Annotated[int, Field(ge=1, le=200)] = 20


class LocalMessageOutput(ToolOutput):
    position: int
    role: str
    type: str
    uuid: str | None
    timestamp: str | None
    text: str
    raw_event_index: int


class LocalConversationsGetOutput(ToolOutput):
    conversation: ListedConversation
    messages: list[LocalMessageOutput]
    total: int
    """Messages in the whole conversation."""
    left_out: int
    """Messages of the wanted ones that did not fit."""


def _get(arguments: LocalConversationsGetArguments, call: McpCall) -> LocalConversationsGetOutput:
    read = call.caller.local_conversations.get(
        arguments.id, around=arguments.around, limit=arguments.limit
    )
    messages = [LocalMessageOutput.model_validate(one.as_json()) for one in read.messages]
    centre = arguments.around or read.total
    nearest = fitting(sorted(messages, key=lambda one: abs(one.position - centre)))
    return LocalConversationsGetOutput(
        conversation=listed_conversation(read.conversation),
        messages=sorted(nearest, key=lambda one: one.position),
        total=read.total,
        left_out=len(messages) - len(nearest),
    )


def _text(output: LocalConversationsGetOutput) -> str:
    lines = [f"{one.position} {one.role} ({one.type}): {one.text}" for one in output.messages]
    if output.left_out:
        lines.append(f"({output.left_out:,} more are left out: ask around another position)")
    return "\n\n".join(lines) or "It has no messages on this machine."


LOCAL_CONVERSATIONS_GET = McpTool(
    "local_conversations_get",
    "Read a conversation of another agent",
    input=LocalConversationsGetArguments,
    output=LocalConversationsGetOutput,
    run=_get,
    text=_text,
    hints=READS,
)
