"""Agents: their records, and what their mounts resolve to.

Every part of the harness that an agent can configure adds its key to `AgentConfig` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.context.budget import CONTEXT_CHARACTERS_MAX, MEMORY_CHARACTERS_MAX, budget
from harness.context.prune import TURNS, Pruning
from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool, check_names
from harness.messages.event import OnBusy
from harness.sandboxes.record import SandboxRecord
from workspaces.accounts.account import Principal
from workspaces.accounts.record_catalog import Catalog, RecordKind, partition_of
from workspaces.clock import Clock
from workspaces.errors import NotFound, Refused
from workspaces.home.workspaces import (
    Workspaces,
    is_private,
    private_to_agent,
    private_to_both,
    private_to_user,
)
from workspaces.ids import AgentId, Namespace, SandboxId, WorkspaceId
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.storage.records import RecordStore
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import Name, WorkspaceRecord

_FindSandbox = Callable[[SandboxId | None], SandboxRecord | None]

SYSTEM_CHARACTERS_MAX = 50_000
MEMORY_CHARACTERS_HIGHEST = 200_000
"""What memory may ever take of the largest context that can be configured."""
CONTEXT_CHARACTERS_HIGHEST = 500_000
MOUNTS_MAX = 20
STEPS_HIGHEST = 1000
OUTPUT_TOKENS_HIGHEST = 128_000
"""As many as the largest answer of a model may have."""
PRUNING_TURNS_HIGHEST = 1000
TURN_SECONDS_MAX = 86_400
TURN_DOLLARS_MAX = 10_000
"""More than these is a typing error."""


class MountConfig(StrictModel):
    name: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    workspace_id: Annotated[WorkspaceId, Field(min_length=1)]
    sandbox: SandboxId | None = None
    """Absent: the agent's. Null: no sandbox, so the mount is read-only; and a workspace that is kept in S3
    is read there, without a copy on the machine that runs the turn."""


class Limits(StrictModel):
    """Of one turn. None: no limit."""

    steps: Annotated[int, Field(ge=1, le=STEPS_HIGHEST)] = 40
    seconds: Annotated[float, Field(gt=0, le=TURN_SECONDS_MAX)] | None = None
    """While it is at it: the time in which it waits for an answer does not count."""
    dollars: Annotated[float, Field(gt=0, le=TURN_DOLLARS_MAX)] | None = None
    """Looked at before each question, so that the last one may pass it."""
    output_tokens: Annotated[int, Field(ge=1, le=OUTPUT_TOKENS_HIGHEST)] = 16_000


class SessionMemory(StrictModel):
    max_length: Annotated[int, Field(ge=1, le=MEMORY_CHARACTERS_HIGHEST)] = MEMORY_CHARACTERS_MAX
    """How much memory a prompt shows, in code points, of all mounts together."""


class SessionPruning(StrictModel):
    enabled: bool = True
    turns: Annotated[int, Field(ge=0, le=PRUNING_TURNS_HIGHEST)] = TURNS
    """How many further turns the tool traffic of one stays in the context for."""


class SessionCompaction(StrictModel):
    enabled: bool = False
    max_context_length: Annotated[int, Field(ge=1, le=CONTEXT_CHARACTERS_HIGHEST)] = (
        CONTEXT_CHARACTERS_MAX
    )
    """In code points of the request's JSON, system and messages: one more, and it is compacted."""
    flush: bool = True
    """Whether the model may write down what must last before the conversation is summarised."""


class SessionConfig(StrictModel):
    memory: SessionMemory = SessionMemory()
    pruning: SessionPruning = SessionPruning()
    compaction: SessionCompaction = SessionCompaction()

    @property
    def memory_characters_max(self) -> int:
        return budget(self.memory.max_length, self.compaction.max_context_length)

    @property
    def as_pruned(self) -> Pruning | None:
        """None: everything is shown."""
        return Pruning(self.pruning.turns) if self.pruning.enabled else None


class AgentConfig(StrictModel):
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Absent: the home's setting `model`."""
    system: Annotated[str, Field(max_length=SYSTEM_CHARACTERS_MAX)] | None = None
    sandbox: SandboxId | None = None
    workspaces: list[MountConfig] = Field(default=[], max_length=MOUNTS_MAX)
    private: Literal["ro", "rw", "off"] = "ro"
    """How the private workspaces of the agent and of the user it talks to are mounted."""
    on_busy: OnBusy = "queue"
    """What becomes of an event while the conversation is in use, unless the event says so itself."""
    tools: list[ClientTool] = Field(default=[], max_length=CLIENT_TOOLS_MAX)
    """Those that the client runs: a turn waits for what comes of them."""
    session: SessionConfig = SessionConfig()
    limits: Limits = Limits()


class AgentRecord(StrictModel):
    id: AgentId
    name: Name
    config: AgentConfig = AgentConfig()
    created_at: Stamp
    updated_at: Stamp


AGENTS = RecordKind("agent", "agent", AgentRecord)


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


class AgentCatalog:
    def __init__(
        self,
        principal: Principal,
        records: RecordStore,
        clock: Clock,
        *,
        workspaces: Workspaces,
        sandboxes: Catalog[SandboxRecord],
        tool_names: Iterable[str] = (),
    ) -> None:
        """`tool_names` are taken: those of the tools that every agent has."""
        self._tool_names = frozenset(tool_names)
        self._user_id = principal.user_id
        self._workspaces = workspaces
        self._sandboxes = sandboxes
        self._catalog = Catalog(
            AGENTS,
            partition_of(principal.account_id),
            records,
            clock,
            check=self._check,
            may_change=principal.may_configure,
        )

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

    def adopt(
        self, stated: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None
    ) -> AgentRecord:
        """See `Catalog.adopt`."""
        return self._catalog.adopt(stated, instead_of=instead_of)

    def forget(self, reference: str) -> AgentRecord:
        """The record alone; `Deletion.agent` takes along what belongs to it."""
        return self._catalog.delete(reference)

    def mounting(self, workspace_id: WorkspaceId) -> list[AgentRecord]:
        """The agents that mount this workspace."""
        return [
            agent
            for agent in self.list()
            if any(mount.workspace_id == workspace_id for mount in agent.config.workspaces)
        ]

    def working_in(self, sandbox_id: SandboxId) -> list[AgentRecord]:
        """The agents that work in this sandbox, with all of their mounts or with one."""
        return [
            agent
            for agent in self.list()
            if sandbox_id
            in (agent.config.sandbox, *(mount.sandbox for mount in agent.config.workspaces))
        ]

    def mounts(self, workspaces: Sequence[Workspace | str]) -> list[dict[str, str]]:
        """The configuration that mounts these workspaces under their own names."""
        records = [
            self._workspaces.record(one) if isinstance(one, str) else one.record
            for one in workspaces
        ]
        return [{"name": mount_name(record.name), "workspaceId": record.id} for record in records]

    def bindings(self, agent: AgentRecord) -> list[Mount]:
        """What the agent's mounts are right now; the first is its default workspace, private ones
        come last. A mount whose workspace or sandbox was deleted is left out."""
        find = cache(self._sandbox)  # most of them name the same one
        resolved = (self._resolved(agent, config, find) for config in agent.config.workspaces)
        return [one for one in resolved if one is not None] + self._private(agent, find)

    def only_read_in_place(self) -> frozenset[WorkspaceId]:
        """The workspaces that agents mount and no agent needs a copy of."""
        there, copied = set[WorkspaceId](), set[WorkspaceId]()
        for agent in self.list():
            for mount in agent.config.workspaces:
                (there if _is_without_sandbox(mount) else copied).add(mount.workspace_id)
        return frozenset(there - copied)

    def default_namespace(self, agent: AgentRecord) -> Namespace | None:
        """Of the first mount; None for an agent that mounts nothing."""
        bindings = self.bindings(agent)
        return bindings[0].namespace if bindings and not bindings[0].is_private else None

    def _resolved(self, agent: AgentRecord, mount: MountConfig, find: _FindSandbox) -> Mount | None:
        try:
            record = self._workspaces.record(mount.workspace_id)
            if _is_read_in_place(mount, record):
                return Mount(mount.name, self._workspaces.remote(record), is_writable=False)
            states_one = "sandbox" in mount.model_fields_set
            sandbox = find(mount.sandbox if states_one else agent.config.sandbox)
            workspace = self._workspaces.open(record)
            return Mount(mount.name, workspace, _allows_writing(sandbox), sandbox=sandbox)
        except NotFound:
            return None

    def _private(self, agent: AgentRecord, find: _FindSandbox) -> list[Mount]:
        """Private workspaces are made when they are mounted writable; nothing is shown of one that
        nobody ever wrote to."""
        if agent.config.private == "off":
            return []
        try:
            sandbox = find(agent.config.sandbox)
        except NotFound:
            sandbox = None
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

    def _sandbox(self, sandbox: SandboxId | None) -> SandboxRecord | None:
        """NotFound when that sandbox was deleted."""
        return None if sandbox is None else self._sandboxes.get(sandbox)

    def _check(self, record: AgentRecord, before: AgentRecord | None) -> None:
        """What was referred to before may dangle by now, and on another machine from the start: mounts
        that do are left out, and in the way of no other change."""
        config, known = record.config, _references(before)
        check_names(config.tools, self._tool_names, within="config.tools")
        if config.sandbox not in known:
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
            if mount.sandbox not in known:
                self._check_sandbox(f"{field}.sandbox", mount.sandbox)
            if mount.workspace_id not in known:
                self._check_workspace(f"{field}.workspaceId", mount.workspace_id)
            if is_private(mount.workspace_id):
                rule = "is private: it is mounted by the setting `private`"
                raise Refused(f"{field}.workspaceId", mount.workspace_id, rule)

    def _check_workspace(self, field: str, workspace_id: WorkspaceId) -> None:
        try:
            found = self._workspaces.record(workspace_id).id
        except NotFound:
            found = None
        if found != workspace_id:  # a name is no id: it may be another workspace's tomorrow
            raise Refused(field, workspace_id, "is not the id of a workspace of this account")

    def _check_sandbox(self, field: str, sandbox: str | None) -> None:
        if sandbox is None:
            return
        try:
            found = self._sandboxes.get(sandbox).id
        except NotFound:
            found = None
        if found != sandbox:
            raise Refused(field, sandbox, "is not the id of a sandbox of this account")


def _references(agent: AgentRecord | None) -> set[str | None]:
    if agent is None:
        return set()
    mounts = agent.config.workspaces
    ids = (one for mount in mounts for one in (mount.sandbox, mount.workspace_id))
    return {agent.config.sandbox, *ids}


def missing_mounts(agent: AgentRecord, bindings: Sequence[Mount]) -> list[str]:
    """The names of the mounts that are left out of what the agent's were resolved to."""
    bound = {mount.name for mount in bindings}
    return [mount.name for mount in agent.config.workspaces if mount.name not in bound]


def _is_read_in_place(mount: MountConfig, record: WorkspaceRecord) -> bool:
    return record.is_shared and _is_without_sandbox(mount)


def _is_without_sandbox(mount: MountConfig) -> bool:
    """Only where the mount itself says so: an agent without a sandbox reads copies."""
    return mount.sandbox is None and "sandbox" in mount.model_fields_set


def _allows_writing(sandbox: SandboxRecord | None) -> bool:
    return sandbox is not None and sandbox.config.mode == "rw"


def mount_name(workspace_name: str) -> str:
    """A workspace's name, with what a mount name may not hold turned into `-`."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in ".-") else "-" for c in workspace_name)
    return kept.lstrip(".-")[:64] or "workspace"
