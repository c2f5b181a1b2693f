"""Mounts: the workspaces of an agent, under the names by which it sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.agents.record import AgentRecord, MountConfig
from harness.sandboxes.record import SandboxRecord
from workspaces.errors import Refused
from workspaces.ids import Namespace
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord


@dataclass(frozen=True, slots=True)
class Mount:
    """A workspace under the name by which an agent sees it."""

    name: str
    workspace: Workspace | RemoteWorkspace
    is_writable: bool
    is_private: bool = False
    """A private mount is never the default."""
    sandbox: SandboxRecord | None = None
    """The sandbox in which commands see the mount. None: no command sees it, and it is only read."""

    @property
    def is_asked_for(self) -> bool:
        """Return True if each command and each write here needs approval."""
        return self.sandbox is not None and self.sandbox.config.permission == "ask"

    @property
    def namespace(self) -> Namespace:
        return self.workspace.namespace

    @property
    def here(self) -> Workspace:
        """Return the workspace on this machine.

        Raises: Refused if this machine has no copy of it.
        """
        if isinstance(self.workspace, RemoteWorkspace):
            rule = "is read in S3, and has no copy on this machine"
            remedy = "use read and glob there, or name another workspace"
            raise Refused("workspace", self.name, rule, remedy=remedy)
        return self.workspace

    @property
    def is_distant(self) -> bool:
        return isinstance(self.workspace, RemoteWorkspace)


def missing_mounts(agent: AgentRecord, bindings: Sequence[Mount]) -> list[str]:
    """Return the names of the configured mounts that could not be resolved."""
    bound = {mount.name for mount in bindings}
    return [mount.name for mount in agent.config.workspaces if mount.name not in bound]


def is_read_in_place(mount: MountConfig, record: WorkspaceRecord) -> bool:
    return record.is_shared and has_no_sandbox(mount)


def has_no_sandbox(mount: MountConfig) -> bool:
    """Return True if the mount itself says null. A mount of an agent without a sandbox reads a copy."""
    return mount.sandbox is None and "sandbox" in mount.model_fields_set


def allows_writing(sandbox: SandboxRecord | None) -> bool:
    return sandbox is not None and sandbox.config.mode == "rw"


def mount_name(workspace_name: str) -> str:
    """Return a workspace's name with every character that a mount name may not hold as `-`."""
    kept = "".join(
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in workspace_name
    )
    return kept.lstrip("._-")[:64] or "workspace"
