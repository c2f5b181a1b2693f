"""The blocks that the tools of one agent reach in a turn."""

from __future__ import annotations

from dataclasses import dataclass

from harness.memory.blocks.block import BlockPlace, BlockScope, BlockType
from harness.memory.blocks.blocks import Blocks
from workspaces.ids import AgentId


@dataclass(frozen=True, slots=True)
class AgentBlocks:
    """The user's blocks, as the tools of an agent may use them."""

    blocks: Blocks
    agent_id: AgentId
    is_writable: bool
    """False if the agent's private memory is off: blocks are searched, and not written."""
    is_asked_for: bool
    """True if a person must approve each write."""

    def place(self, block_type: BlockType, scope: BlockScope) -> BlockPlace:
        return self.blocks.place_of(block_type, self.agent_id if scope == "agent" else None)
