"""The caller of an MCP request: a principal, its default workspace, and the program that it uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.agents.mounts import Mount
from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.memorize.local.local_conversations import LocalConversations, TranscriptRoots
from harness.sandboxes.record import SandboxConfig, SandboxRecord
from harness.tools.tool_context import ToolContext
from workspaces.errors import Forbidden, NotFound, Refused
from workspaces.home.workspaces import private_to_user
from workspaces.revision import Author
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

CLIENT_CHARACTERS_MAX = 100
"""Longest name of a client program that stands in a revision."""

READING = SandboxRecord.model_construct(id="", name="", config=SandboxConfig())
"""The limits of a search, where the account has no sandbox of the name `default`."""


NO_CONVERSATIONS = LocalConversations(TranscriptRoots())


@dataclass(frozen=True, slots=True)
class McpCaller:
    services: PrincipalServices
    default_workspace: str | None = None
    """Name or id of the workspace to use if a call names none. None: the home's, or the user's own."""
    default_agent: str | None = None
    """Name or id of the agent to use if a call names none."""
    local_conversations: LocalConversations = NO_CONVERSATIONS
    """The conversations of other agents that the caller may read: none over HTTP."""
    client: str = ""
    """Name and version of the client program, for the history."""

    def of_client(self, name: str) -> McpCaller:
        return replace(self, client=name[:CLIENT_CHARACTERS_MAX])

    @property
    def author(self) -> Author:
        author = self.services.principal.author("mcp")
        return author.saying("Client", self.client) if self.client else author

    def workspace(self, reference: str | None) -> Workspace:
        """Return the named workspace, or the default one.

        Raises: NotFound; Forbidden for a shared workspace that a user's key names.
        """
        workspaces = self.services.workspaces
        if reference is not None:
            return workspaces.reach(reference)
        if self.default_workspace is not None:
            return workspaces.reach(self.default_workspace)
        if self.services.principal.may_configure:
            return workspaces.reach(self.services.settings.default_workspace)
        own = private_to_user(self.services.principal.user_id)
        return workspaces.private(own, create=True) or workspaces.reach(own)

    def workspaces(self) -> list[WorkspaceRecord]:
        """Return the records of the workspaces that the caller may reach by name."""
        try:
            default = [self.workspace(None).record]
        except (NotFound, Forbidden):
            default = []
        if not self.services.principal.may_configure:
            return default
        others = [one for one in self.services.workspaces.list() if one not in default]
        return [*default, *others]

    def agent(self, reference: str | None) -> AgentRecord:
        """Return the named agent, or the default one.

        Raises: Refused if none is named and there is no default; NotFound.
        """
        name = reference or self.default_agent
        if name is not None:
            return self.services.agents.get(name)
        names = ", ".join(agent.name for agent in self.services.agents.list())
        raise Refused("agent_id", None, "is required", remedy=f"there are: {names or 'none'}")

    def tool_context(self, reference: str | None) -> ToolContext:
        """Return a context in which the tools of a turn can be used on one workspace."""
        workspace = self.workspace(reference)
        try:
            sandbox = self.services.sandboxes.get("default")
        except NotFound:
            sandbox = READING
        mount = Mount(workspace.record.name, workspace, is_writable=True, sandbox=sandbox)
        author = self.author
        programs = self.services.dispatcher.programs()
        return ToolContext([mount], lambda _: author, programs=programs)
