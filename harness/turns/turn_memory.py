"""The memory blocks of one turn: the core blocks in its prompt, and the reminder beside its message."""

from __future__ import annotations

from dataclasses import dataclass

from harness.agents.record import AgentRecord
from harness.memory.blocks.blocks import Blocks
from harness.memory.blocks.core_blocks import CoreBlocks
from harness.memory.blocks.reminder import Reminders
from harness.messages.memory_policy import MemoryPolicy
from harness.runtime.templates import render
from workspaces.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TurnMemory:
    core: CoreBlocks
    reminders: Reminders

    def workspaces(self) -> list[Workspace]:
        """Return the workspaces that the policy reads and that exist."""
        opened = map(self.reminders.blocks.opened, {*self.core.places, *self.reminders.places})
        return [workspace for workspace in opened if workspace is not None]

    def reminder(self, message: str) -> str:
        """Return the reminder beside a message; empty without one."""
        return self.reminders.of(message)


def turn_memory(blocks: Blocks, agent: AgentRecord, policy: MemoryPolicy) -> TurnMemory:
    return TurnMemory(
        CoreBlocks(blocks, agent.id, policy), Reminders(blocks, agent.id, policy, render)
    )


def effective_policy(agent: AgentRecord, asked: MemoryPolicy | None) -> MemoryPolicy:
    """Return the policy of a turn: the agent's, with the keys that the turn asks for."""
    default = agent.config.memory_policy
    return default if asked is None else asked.replacing(default)
