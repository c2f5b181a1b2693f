"""The prompt parts of one workspace, as an agent that mounts it would be shown them."""

from __future__ import annotations

from harness.agents.mounts import Mount, mount_name
from harness.agents.record import AgentConfig
from harness.context.part import PromptPart
from harness.memory.facts.fact_index import FactIndexes
from harness.memory.facts.prompt_facts import MountedFacts, PromptFacts
from harness.prompts.prompt_sources import PromptSources
from workspaces.clock import Clock
from workspaces.history.history import HEAD, View
from workspaces.workspace.workspace import Workspace


def workspace_prompt(
    workspace: Workspace,
    clock: Clock,
    *,
    facts: FactIndexes,
    view: View = HEAD,
    config: AgentConfig | None = None,
) -> tuple[PromptPart, ...]:
    """Return the parts, as the workspace is now or as a revision has it. `config` is that of the agent.

    Raises: NotFound if there is no such revision.
    """
    if view != HEAD:
        workspace.history.resolve(view)
    mount = Mount(mount_name(workspace.record.name), workspace, is_writable=True)
    shown = PromptFacts(facts, (), [MountedFacts(mount.name, workspace, view)])
    sources = PromptSources(
        config or AgentConfig(), [mount], model="", facts=shown, view_of=lambda _: view
    )
    return sources.parts(clock.now().date())
