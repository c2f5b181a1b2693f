"""The tool `update_memory`: that of a turn, on the blocks of the caller."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from harness.mcp.tool import REPLACES, McpCall, McpTool, ToolInput, ToolOutput
from harness.memory.blocks.agent_blocks import AgentBlocks
from harness.memory.blocks.block import BlockScope, BlockType
from harness.messages.message import ToolCall
from harness.tools.memory.update_memory import UPDATE_MEMORY
from harness.tools.tool_context import ToolContext
from workspaces.ids import AgentId


class UpdateMemoryArguments(ToolInput):
    block: BlockType
    operation: Literal["add", "replace", "remove", "rewrite"]
    entry: str | None = None
    """The entry to replace or remove, by its text."""
    text: str | None = None
    """The new entry; for `rewrite` the whole block."""
    version: str | None = None
    """The version that was read. A rewrite of a block that exists needs it."""
    scope: BlockScope = "user"
    agent_id: str | None = None
    """Name or id, for the scope `agent`. Null: the agent that HARNESS_AGENT_ID names."""


class UpdateMemoryOutput(ToolOutput):
    told: str
    block: dict[str, Any] | None
    """The block as it is now."""


def _update(arguments: UpdateMemoryArguments, call: McpCall) -> UpdateMemoryOutput:
    caller = call.caller
    agent_id = AgentId("")
    if arguments.scope == "agent":
        agent_id = caller.agent(arguments.agent_id).id
    blocks = AgentBlocks(caller.services.blocks, agent_id, is_writable=True, is_asked_for=False)
    author = caller.author
    context = ToolContext([], lambda _: author, blocks=blocks)
    stated = arguments.model_dump(exclude={"agent_id"}, exclude_none=True)
    told = asyncio.run(UPDATE_MEMORY.answer(ToolCall("", UPDATE_MEMORY.name, stated), context))
    block = blocks.blocks.find(blocks.place(arguments.block, arguments.scope))
    return UpdateMemoryOutput(told=told, block=None if block is None else block.as_json())


def _text(output: UpdateMemoryOutput) -> str:
    content = "" if output.block is None else output.block["content"]
    return f"{output.told}\n{content}"


UPDATE_BLOCK = McpTool(
    "update_memory",
    "Change a memory block",
    input=UpdateMemoryArguments,
    output=UpdateMemoryOutput,
    run=_update,
    text=_text,
    hints=REPLACES,
)
