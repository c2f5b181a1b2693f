"""The tool `memorize`: store one durable fact with the moments of a conversation that prove it."""

from __future__ import annotations

from typing import Any, Literal

from harness.mcp.tool import ADDS, McpCall, McpTool, ToolOutput
from harness.mcp.tools.memorize.shown_memory import ShownMemory, shown_memory
from harness.memorize.memorize_request import MemorizeRequest
from harness.memorize.sent_conversation import SentConversation
from workspaces.errors import Refused


class MemorizeArguments(MemorizeRequest):
    conversation: SentConversation | None = None
    """The conversation itself, if this server cannot read it."""


class MemorizeOutput(ToolOutput):
    status: Literal["created", "updated", "unchanged"]
    memory: ShownMemory
    conversation: dict[str, Any]
    """Its archive."""
    warnings: list[str]


def _memorize(arguments: MemorizeArguments, call: McpCall) -> MemorizeOutput:
    caller, sent = call.caller, arguments.conversation
    if sent is not None and sent.id != arguments.conversation_id:
        rule = f"must be {sent.id}, the id of the conversation that comes with it"
        raise Refused("conversation_id", arguments.conversation_id, rule)
    stated = {name: getattr(arguments, name) for name in MemorizeRequest.model_fields}
    stated["agent_id"] = arguments.agent_id or caller.default_agent
    stated["workspace"] = arguments.workspace or caller.default_workspace
    author = caller.services.principal.author("memorize")
    result = caller.services.memorizer.memorize(
        MemorizeRequest.model_construct(**stated),
        by=author.saying("Client", caller.client) if caller.client else author,
        local=caller.local_conversations,
        sent=None if sent is None else sent.whole(caller.services.clock),
    )
    archive = result.archive.as_json()
    archive["snapshots"] = len(result.archive.snapshots)
    return MemorizeOutput(
        status=result.status,
        memory=shown_memory(result.memory),
        conversation=archive,
        warnings=list(result.warnings)[:20],
    )


def _text(output: MemorizeOutput) -> str:
    memory = output.memory
    lines = [
        f"{output.status.capitalize()}: {memory.key} ({memory.id}) in {memory.workspace}.",
        memory.content,
    ]
    lines += [f"- proof: {one.quote}" for one in memory.groundings]
    lines += [f"Note: {warning}" for warning in output.warnings]
    return "\n".join(lines)


MEMORIZE = McpTool(
    "memorize",
    "Memorize a fact with its proof",
    input=MemorizeArguments,
    output=MemorizeOutput,
    run=_memorize,
    text=_text,
    hints=ADDS,
)
