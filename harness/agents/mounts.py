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
    """Then it is never the default."""
    sandbox: SandboxRecord | None = None
    """Where commands see it. None: it is seen by no command, and only read."""

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody must allow each command and each write here."""
        return self.sandbox is not None and self.sandbox.config.permission == "ask"

    @property
    def namespace(self) -> Namespace:
        return self.workspace.namespace

    @property
    def here(self) -> Workspace:
        """The files on this machine. Refused where there are none."""
        if isinstance(self.workspace, RemoteWorkspace):
            rule = "is read in S3, and has no copy on this machine"
            remedy = "use read and glob there, or name another workspace"
            raise Refused("workspace", self.name, rule, remedy=remedy)
        return self.workspace

    @property
    def is_distant(self) -> bool:
        return isinstance(self.workspace, RemoteWorkspace)


def missing_mounts(agent: AgentRecord, bindings: Sequence[Mount]) -> list[str]:
    """The names of the mounts that are left out of what the agent's were resolved to."""
    bound = {mount.name for mount in bindings}
    return [mount.name for mount in agent.config.workspaces if mount.name not in bound]


def is_read_in_place(mount: MountConfig, record: WorkspaceRecord) -> bool:
    return record.is_shared and has_no_sandbox(mount)


def has_no_sandbox(mount: MountConfig) -> bool:
    """Only where the mount itself says so: an agent without a sandbox reads copies."""
    return mount.sandbox is None and "sandbox" in mount.model_fields_set


def allows_writing(sandbox: SandboxRecord | None) -> bool:
    return sandbox is not None and sandbox.config.mode == "rw"


def mount_name(workspace_name: str) -> str:
    """A workspace's name, with what a mount name may not hold turned into `-`."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "-" for c in workspace_name)
    return kept.lstrip(".-")[:64] or "workspace"
