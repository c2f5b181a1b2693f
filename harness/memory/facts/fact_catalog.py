"""Whose facts a caller reaches: those of a workspace, and those of an agent.

An agent's facts lie in a private workspace. The account's owner has the agent's own, which every user of the
agent is shown. Any other user has a private workspace with that agent, shown to that user alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.memory.facts.fact_index import FactIndexes
from harness.memory.facts.facts import Facts, FactScope
from workspaces.accounts.principal import Principal
from workspaces.errors import NotFound
from workspaces.home.workspaces import (
    Workspaces,
    private_to_agent,
    private_to_both,
    private_to_user,
)
from workspaces.ids import AgentId, WorkspaceId
from workspaces.workspace.workspace import Workspace


class RecordOfAgent(Protocol):
    """An agent, as far as its facts need to know it."""

    @property
    def id(self) -> AgentId: ...


@dataclass(frozen=True, slots=True)
class FactCatalog:
    """The facts that one principal reaches."""

    principal: Principal
    workspaces: Workspaces
    agent_id: Callable[[str], AgentId]
    """Returns the id of the agent with this id or name. Raises: NotFound."""
    indexes: FactIndexes
    may_hold_secrets: bool = False
    """True if facts with secrets are accepted."""

    def of_workspace(self, reference: str | Workspace) -> Facts:
        """Return the facts of a workspace: an opened one, or the one with this id or name.

        Raises: NotFound, also for the private workspace of an agent; Forbidden if a user's key names a
        shared workspace.
        """
        if isinstance(reference, Workspace):
            return self.over(reference)
        own = private_to_user(self.principal.user_id)
        if reference == own:
            return self._private(FactScope("workspace", own))
        if _is_of_agent(reference):
            raise NotFound("workspace", reference)
        return self.over(self.workspaces.reach(reference))

    def of_agent(self, reference: str | RecordOfAgent) -> Facts:
        """Return the facts of an agent: by its record, its id or its name.

        Raises: NotFound.
        """
        agent_id = self.agent_id(reference if isinstance(reference, str) else reference.id)
        user_id = self.principal.user_id
        if user_id == self.principal.owner.id:
            workspace_id = private_to_agent(agent_id)
        else:
            workspace_id = private_to_both(user_id, agent_id)
        return self._private(FactScope("agent", workspace_id, agent_id))

    def of_every_user(self, agent_id: AgentId) -> Facts:
        """Return the facts of an agent that all of its users are shown, for work that its owner allowed."""
        return self._private(FactScope("agent", private_to_agent(agent_id), agent_id))

    def over(self, workspace: Workspace) -> Facts:
        """Return the facts of a workspace that the caller has opened."""
        scope = FactScope("workspace", workspace.record.id)
        return self._facts(scope, lambda _: workspace)

    def _private(self, scope: FactScope) -> Facts:
        workspaces, workspace_id = self.workspaces, scope.workspace_id

        def open_workspace(create: bool) -> Workspace | None:
            return workspaces.private(workspace_id, create=create)

        return self._facts(scope, open_workspace)

    def _facts(self, scope: FactScope, open_workspace: Callable[[bool], Workspace | None]) -> Facts:
        return Facts(
            scope,
            open_workspace,
            self.indexes,
            self.principal.author("api"),
            may_hold_secrets=self.may_hold_secrets,
        )


def _is_of_agent(workspace_id: str) -> bool:
    return WorkspaceId(workspace_id).startswith("agent:") or ":agent:" in workspace_id
