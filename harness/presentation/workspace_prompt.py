"""The prompt parts of one workspace, as an agent that mounts it would be shown them."""

from __future__ import annotations

from harness.agents.mounts import Mount, mount_name
from harness.agents.record import AgentConfig
from harness.context.part import PromptPart
from harness.prompts.prompt_sources import PromptSources
from workspaces.clock import Clock
from workspaces.history.history import HEAD, View
from workspaces.workspace.workspace import Workspace


def workspace_prompt(
    workspace: Workspace, clock: Clock, *, view: View = HEAD
) -> tuple[PromptPart, ...]:
    """Return the parts, as the workspace is now or as a revision has it.

    Raises: NotFound if there is no such revision.
    """
    if view != HEAD:
        workspace.history.resolve(view)
    mount = Mount(mount_name(workspace.record.name), workspace, is_writable=True)
    sources = PromptSources(AgentConfig(), [mount], model="", view_of=lambda _: view)
    return sources.parts(clock.now().date())
