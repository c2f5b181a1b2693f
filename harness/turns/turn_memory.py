"""The memory of one turn beside its mounts: core blocks and facts in its prompt, and the reminder beside its
message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.agents.catalog import AgentCatalog
from harness.agents.mounts import Mount
from harness.agents.record import AgentRecord
from harness.memory.blocks.agent_blocks import AgentBlocks
from harness.memory.blocks.blocks import Blocks
from harness.memory.blocks.core_blocks import CoreBlocks
from harness.memory.blocks.reminder import Reminders
from harness.memory.facts.prompt_facts import HidesFact, MountedFacts, PromptFacts
from harness.messages.memory_policy import MemoryPolicy
from harness.prompts.prompt_sources import ViewOf, newest
from harness.runtime.templates import render
from workspaces.workspace.workspace import Workspace

if TYPE_CHECKING:
    from harness.turns.turn_dependencies import PromptDependencies

_OF_AGENT = ("_agent", "_user-agent")
"""Mounts whose facts are the agent's: shown if the agent's memory is on, and not as those of a workspace."""


@dataclass(frozen=True, slots=True)
class TurnMemory:
    core: CoreBlocks
    reminders: Reminders

    def workspaces(self) -> list[Workspace]:
        """Return the workspaces that the policy reads and that exist."""
        opened = map(self.reminders.blocks.opened, {*self.core.places, *self.reminders.places})
        return [workspace for workspace in opened if workspace is not None]


def turn_memory(blocks: Blocks, agent: AgentRecord, policy: MemoryPolicy) -> TurnMemory:
    return TurnMemory(
        CoreBlocks(blocks, agent.id, policy), Reminders(blocks, agent.id, policy, render)
    )


def agent_blocks(blocks: Blocks, agents: AgentCatalog, agent: AgentRecord) -> AgentBlocks:
    """Return the blocks that the agent's tools reach."""
    return AgentBlocks(
        blocks,
        agent.id,
        is_writable=agent.config.private != "off",
        is_asked_for=agents.is_asked_for(agent),
    )


def effective_policy(agent: AgentRecord, asked: MemoryPolicy | None) -> MemoryPolicy:
    """Return the policy of a turn: the agent's, with the keys that the turn asks for."""
    default = agent.config.memory_policy
    return default if asked is None else asked.replacing(default)


def turn_facts(
    dependencies: PromptDependencies,
    agent: AgentRecord,
    mounts: Sequence[Mount],
    view_of: ViewOf = newest,
    hides: HidesFact | None = None,
) -> PromptFacts:
    """Return the facts that a turn of the agent shows, without those of the agent that it `hides`."""
    mounted = [
        MountedFacts(mount.name, mount.workspace, view_of(mount))
        for mount in mounts
        if mount.name not in _OF_AGENT
    ]
    return PromptFacts(dependencies.fact_indexes, dependencies.agents.memory(agent), mounted, hides)
