"""The facts that a turn of an agent shows."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agents.mounts import Mount
from harness.agents.record import AgentRecord
from harness.memory.facts.prompt_facts import MountedFacts, PromptFacts
from harness.prompts.prompt_sources import ViewOf, newest
from harness.turns.turn_dependencies import TurnDependencies

_OF_AGENT = ("_agent", "_user-agent")
"""Mounts whose facts are the agent's: shown if the agent's memory is on, and not as those of a workspace."""


def turn_facts(
    dependencies: TurnDependencies,
    agent: AgentRecord,
    mounts: Sequence[Mount],
    view_of: ViewOf = newest,
) -> PromptFacts:
    mounted = [
        MountedFacts(mount.name, mount.workspace, view_of(mount))
        for mount in mounts
        if mount.name not in _OF_AGENT
    ]
    return PromptFacts(dependencies.fact_indexes, dependencies.agents.memory(agent), mounted)
