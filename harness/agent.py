"""Agents: their records, and what their mounts resolve to.

Every part of the harness that an agent can configure adds its key to `AgentConfig` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.sandbox import SandboxRecord
from workspaces.account import Principal
from workspaces.catalog import Catalog, Family
from workspaces.clock import Clock
from workspaces.configuration import Name
from workspaces.errors import NotFound, Refused
from workspaces.ids import AgentId, Namespace, SandboxId, WorkspaceId
from workspaces.parse import Shape
from workspaces.records import RecordStore
from workspaces.stamp import Stamp
from workspaces.workspace import Workspace
from workspaces.workspaces import (
    Workspaces,
    is_private_to,
    private_to_agent,
    private_to_both,
    private_to_user,
)

SYSTEM_CHARACTERS_MAX = 50_000
MOUNTS_MAX = 20


class MountConfig(Shape):
    name: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    workspace_id: Annotated[WorkspaceId, Field(min_length=1)]
    sandbox: SandboxId | None = None
    """Absent: the agent's. Null: no sandbox, so the mount is read-only."""


class Limits(Shape):
    steps: Annotated[int, Field(ge=1, le=1000)] = 40
    output_tokens: Annotated[int, Field(ge=1, le=128_000)] = 16_000


class AgentConfig(Shape):
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Absent: the home's setting `model`."""
    system: Annotated[str, Field(max_length=SYSTEM_CHARACTERS_MAX)] | None = None
    sandbox: SandboxId | None = None
    workspaces: list[MountConfig] = Field(default=[], max_length=MOUNTS_MAX)
    private: Literal["ro", "rw", "off"] = "ro"
    """How the private workspaces of the agent and of the user it talks to are mounted."""
    limits: Limits = Limits()


class AgentRecord(Shape):
    id: AgentId
    name: Name
    config: AgentConfig = AgentConfig()
    created_at: Stamp
    updated_at: Stamp


AGENTS = Family("agent", "agent", AgentRecord)


@dataclass(frozen=True, slots=True)
class Mount:
    """A workspace under the name by which an agent sees it."""

    name: str
    workspace: Workspace
    is_writable: bool
    is_private: bool = False
    """Then it is never the default."""
    sandbox: SandboxRecord | None = None
    """Where commands see it. None: it is seen by no command, and only read."""

    @property
    def namespace(self) -> Namespace:
        return self.workspace.namespace


class Agents:
    def __init__(
        self,
        principal: Principal,
        records: RecordStore,
        clock: Clock,
        *,
        workspaces: Workspaces,
        sandboxes: Catalog[SandboxRecord],
    ) -> None:
        self._user_id = principal.user_id
        self._workspaces = workspaces
        self._sandboxes = sandboxes
        self._catalog = Catalog(AGENTS, principal.account_id, records, clock, check=self._check)

    def create(
        self,
        name: str,
        *,
        workspaces: Sequence[Workspace | str] = (),
        sandbox: str | None = "default",
        **config: Any,
    ) -> AgentRecord:
        """An agent that mounts these workspaces, the first one being its default.

        `sandbox` None leaves it without: its mounts are then read-only.
        """
        mounts = self.mounts(workspaces)
        own = {"sandbox": self._sandboxes.get(sandbox).id} if sandbox else {}
        stated = {**config, **own, **({"workspaces": mounts} if mounts else {})}
        return self.add({"name": name, "config": stated})

    def add(self, fields: Mapping[str, Any]) -> AgentRecord:
        """From the fields of a record, as a program states them."""
        return self._catalog.create(fields)

    def get(self, reference: str) -> AgentRecord:
        return self._catalog.get(reference)

    def list(self) -> list[AgentRecord]:
        return self._catalog.list()

    def patch(self, reference: str, patch: Mapping[str, Any]) -> AgentRecord:
        return self._catalog.patch(reference, patch)

    def delete(self, reference: str) -> AgentRecord:
        """The record, and what was private to the agent; the workspaces it mounted stay."""
        record = self._catalog.delete(reference)
        for workspace in self._workspaces.list(private=True):
            if is_private_to(workspace.id, record.id):
                self._workspaces.delete(workspace.id)
        return record

    def mounting(self, workspace_id: WorkspaceId) -> list[AgentRecord]:
        """The agents that mount this workspace."""
        return [
            agent
            for agent in self.list()
            if any(mount.workspace_id == workspace_id for mount in agent.config.workspaces)
        ]

    def mounts(self, workspaces: Sequence[Workspace | str]) -> list[dict[str, str]]:
        """The configuration that mounts these workspaces under their own names."""
        opened = [self._workspaces.get(w) if isinstance(w, str) else w for w in workspaces]
        return [
            {"name": mount_name(workspace.record.name), "workspaceId": workspace.record.id}
            for workspace in opened
        ]

    def bindings(self, agent: AgentRecord) -> list[Mount]:
        """What the agent's mounts are right now; the first is its default workspace, private ones
        come last. A mount whose workspace was deleted is left out."""
        mounts: list[Mount] = []
        for config in agent.config.workspaces:
            try:
                workspace = self._workspaces.get(config.workspace_id)
            except NotFound:
                continue
            sandbox = self._sandbox(agent.config, config)
            mounts.append(Mount(config.name, workspace, _allows_writing(sandbox), sandbox=sandbox))
        return mounts + self._private(agent)

    def _private(self, agent: AgentRecord) -> list[Mount]:
        """Private workspaces are made when they are mounted writable; nothing is shown of one that
        nobody ever wrote to."""
        if agent.config.private == "off":
            return []
        sandbox = self._found(agent.config.sandbox)
        is_writable = agent.config.private == "rw" and _allows_writing(sandbox)
        mounts: list[Mount] = []
        for name, workspace_id in (
            ("_agent", private_to_agent(agent.id)),
            ("_user", private_to_user(self._user_id)),
            ("_user-agent", private_to_both(self._user_id, agent.id)),
        ):
            workspace = self._workspaces.private(workspace_id, create=is_writable)
            if workspace is not None:
                mounts.append(Mount(name, workspace, is_writable, is_private=True, sandbox=sandbox))
        return mounts

    def _sandbox(self, agent: AgentConfig, mount: MountConfig) -> SandboxRecord | None:
        stated = "sandbox" in mount.model_fields_set
        return self._found(mount.sandbox if stated else agent.sandbox)

    def _found(self, sandbox: SandboxId | None) -> SandboxRecord | None:
        return None if sandbox is None else self._sandboxes.get(sandbox)

    def _check(self, record: AgentRecord) -> None:
        config = record.config
        self._check_sandbox("config.sandbox", config.sandbox)
        names: set[str] = set()
        ids: set[str] = set()
        for position, mount in enumerate(config.workspaces):
            field = f"config.workspaces.{position}"
            if mount.name in names:
                raise Refused(f"{field}.name", mount.name, "is the name of another mount")
            if mount.workspace_id in ids:
                raise Refused(f"{field}.workspaceId", mount.workspace_id, "is mounted already")
            names.add(mount.name)
            ids.add(mount.workspace_id)
            self._check_sandbox(f"{field}.sandbox", mount.sandbox)
            try:
                self._workspaces.get(mount.workspace_id)
            except NotFound as error:
                rule = "is not a workspace of this account"
                raise Refused(f"{field}.workspaceId", mount.workspace_id, rule) from error

    def _check_sandbox(self, field: str, sandbox: str | None) -> None:
        if sandbox is None:
            return
        try:
            self._sandboxes.get(sandbox)
        except NotFound as error:
            raise Refused(field, sandbox, "is not a sandbox of this account") from error


def _allows_writing(sandbox: SandboxRecord | None) -> bool:
    return sandbox is not None and sandbox.config.mode == "rw"


def mount_name(workspace_name: str) -> str:
    """A workspace's name, with what a mount name may not hold turned into `-`."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "-" for c in workspace_name)
    return kept.lstrip(".-")[:64] or "workspace"
