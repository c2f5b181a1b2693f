"""The agents of an account: their records, and what their mounts resolve to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from harness.agents.mounts import (
    Mount,
    allows_writing,
    has_no_sandbox,
    is_read_in_place,
    mount_name,
)
from harness.agents.record import AGENTS, AgentRecord, MountConfig
from harness.messages.client_tool import check_names
from harness.sandboxes.record import SandboxRecord
from workspaces.accounts.principal import Principal
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.stored_items import partition_of
from workspaces.accounts.stored_workspace import is_private
from workspaces.clock import Clock
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.home.workspaces import (
    Workspaces,
    private_to_agent,
    private_to_both,
    private_to_user,
)
from workspaces.ids import AgentId, SandboxId, WorkspaceId
from workspaces.storage.records import RecordChange, RecordStore
from workspaces.workspace.workspace import Workspace

_FindSandbox = Callable[[SandboxId | None], SandboxRecord | None]


def _nothing_also(agent: AgentRecord, before: AgentRecord | None) -> Sequence[RecordChange]:
    del agent, before
    return ()


class AgentCatalog(Catalog[AgentRecord]):
    """The agents of an account. `delete` removes a record alone; `RecordDeletion.agent` also removes what
    belongs to it."""

    def __init__(
        self,
        principal: Principal,
        records: RecordStore,
        clock: Clock,
        *,
        workspaces: Workspaces,
        sandboxes: Catalog[SandboxRecord],
        tool_names: Callable[[], Iterable[str]] = tuple[str],
        check_model: Callable[[str, str], None] = lambda _name, _field: None,
        check_card: Callable[[str, str], None] = lambda _name, _field: None,
        also: Callable[[AgentRecord, AgentRecord | None], Sequence[RecordChange]] = _nothing_also,
    ) -> None:
        """Store the dependencies.

        `tool_names` returns the names that are taken: those of the tools that every agent has. `check_model`
        refuses the name of a model that nothing can ask, `check_card` that of a card which is missing or
        wrong; both also receive the field. For `also`, see `Catalog`.
        """
        self._check_model = check_model
        self._check_card = check_card
        self._tool_names = tool_names
        self._user_id = principal.user_id
        self._workspaces = workspaces
        self._sandboxes = sandboxes
        super().__init__(
            AGENTS,
            partition_of(principal.account_id),
            records,
            clock,
            check=self._check_config,
            also=also,
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
        """Create an agent that mounts these workspaces. The first one is its default.

        With `sandbox` None the agent has no sandbox, so its mounts are read-only.
        """
        mounts = self.mounts(workspaces)
        own = {"sandbox": self._sandboxes.get(sandbox).id} if sandbox else {}
        stated = {**config, **own, **({"workspaces": mounts} if mounts else {})}
        return self.add({"name": name, "config": stated})

    def open_or_create(
        self,
        name: str,
        *,
        workspaces: Sequence[Workspace | str] = (),
        sandbox: str | None = "default",
        **config: Any,
    ) -> AgentRecord:
        """Return the agent with this name. Create it if there is none; else it stays as it is."""
        try:
            return self.get(name)
        except NotFound:
            pass
        try:
            return self.create(name, workspaces=workspaces, sandbox=sandbox, **config)
        except AlreadyExists:  # another process was faster
            return self.get(name)

    def id_of(self, reference: str) -> AgentId:
        """Return the id of the agent with this id or name.

        Raises: NotFound.
        """
        return self.get(reference).id

    def ids(self) -> Sequence[AgentId]:
        """Return the ids of all agents."""
        return [agent.id for agent in self.list()]

    def mounting(self, workspace_id: WorkspaceId) -> list[AgentRecord]:
        """Return the agents that mount this workspace."""
        return [
            agent
            for agent in self.list()
            if any(mount.workspace_id == workspace_id for mount in agent.config.workspaces)
        ]

    def working_in(self, sandbox_id: SandboxId) -> list[AgentRecord]:
        """Return the agents that use this sandbox, for all of their mounts or for one."""
        return [
            agent
            for agent in self.list()
            if sandbox_id
            in (agent.config.sandbox, *(mount.sandbox for mount in agent.config.workspaces))
        ]

    def mounts(self, workspaces: Sequence[Workspace | str]) -> list[dict[str, str]]:
        """Return the configuration that mounts these workspaces under their own names."""
        records = [
            self._workspaces.record(one) if isinstance(one, str) else one.record
            for one in workspaces
        ]
        return [{"name": mount_name(record.name), "workspaceId": record.id} for record in records]

    def bindings(self, agent: AgentRecord, *, creates_private: bool = True) -> list[Mount]:
        """Resolve the agent's mounts as they are now.

        The first one is the default workspace; private ones come last. A mount whose workspace or sandbox
        was deleted is left out. Without `creates_private` so is a private workspace that was never made.
        """
        find = cache(self._sandbox)  # most mounts name the same sandbox
        resolved = (self._resolved(agent, config, find) for config in agent.config.workspaces)
        private = self._private(agent, find, creates=creates_private)
        return [*(one for one in resolved if one is not None), *private]

    def memory(self, agent: AgentRecord) -> list[Workspace]:
        """Return the workspaces with the agent's facts and with those of the user with it, if the agent's
        memory is on. One that was never written to is left out."""
        if not agent.config.memory_enabled:
            return []
        ids = (private_to_agent(agent.id), private_to_both(self._user_id, agent.id))
        found = (self._workspaces.private(one, create=False) for one in ids)
        return [workspace for workspace in found if workspace is not None]

    def is_asked_for(self, agent: AgentRecord) -> bool:
        """Return True if the agent's sandbox demands an approval of each write."""
        try:
            sandbox = self._sandbox(agent.config.sandbox)
        except NotFound:
            return False
        return sandbox is not None and sandbox.config.permission == "ask"

    def only_read_in_place(self) -> frozenset[WorkspaceId]:
        """Return the workspaces that agents mount and of which no agent needs a copy."""
        there, copied = set[WorkspaceId](), set[WorkspaceId]()
        for agent in self.list():
            for mount in agent.config.workspaces:
                (there if has_no_sandbox(mount) else copied).add(mount.workspace_id)
        return frozenset(there - copied)

    def _resolved(self, agent: AgentRecord, mount: MountConfig, find: _FindSandbox) -> Mount | None:
        try:
            record = self._workspaces.record(mount.workspace_id)
            if is_read_in_place(mount, record):
                return Mount(mount.name, self._workspaces.remote(record), is_writable=False)
            states_one = "sandbox" in mount.model_fields_set
            sandbox = find(mount.sandbox if states_one else agent.config.sandbox)
            workspace = self._workspaces.open(record)
            return Mount(mount.name, workspace, allows_writing(sandbox), sandbox=sandbox)
        except NotFound:
            return None

    def _private(self, agent: AgentRecord, find: _FindSandbox, *, creates: bool) -> list[Mount]:
        """Return the mounts of the private workspaces.

        With `creates`, a private workspace is created when it is mounted writable. One that was never
        written to is not shown.
        """
        if agent.config.private == "off":
            return []
        try:
            sandbox = find(agent.config.sandbox)
        except NotFound:
            sandbox = None
        is_writable = agent.config.private == "rw" and allows_writing(sandbox)
        mounts: list[Mount] = []
        for name, workspace_id in (
            ("_agent", private_to_agent(agent.id)),
            ("_user", private_to_user(self._user_id)),
            ("_user-agent", private_to_both(self._user_id, agent.id)),
        ):
            workspace = self._workspaces.private(workspace_id, create=creates and is_writable)
            if workspace is not None:
                mounts.append(Mount(name, workspace, is_writable, is_private=True, sandbox=sandbox))
        return mounts

    def _sandbox(self, sandbox: SandboxId | None) -> SandboxRecord | None:
        """Return the sandbox's record.

        Raises: NotFound if the sandbox was deleted.
        """
        return None if sandbox is None else self._sandboxes.get(sandbox)

    def _check_config(self, record: AgentRecord, before: AgentRecord | None) -> None:
        """Check the model, and the names, workspaces and sandboxes of the mounts.

        A reference that the record had before is not checked: its target may be deleted by now, or may
        never have existed on this machine. Such mounts are left out and block no other change.

        Raises: Refused, naming the field.
        """
        config, known = record.config, _references(before)
        check_names(config.tools, frozenset(self._tool_names()), within="config.tools")
        self._check_model_and_card(record, before)
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

    def _check_model_and_card(self, record: AgentRecord, before: AgentRecord | None) -> None:
        """Check the names of model and card, if they are new, and the prompt of a schedule.

        Raises: Refused, naming the field.
        """
        if record.config.model is not None and record.config.model != (
            before and before.config.model
        ):
            self._check_model(record.config.model, "config.model")
        if record.config.card is not None and record.config.card != (before and before.config.card):
            self._check_card(record.config.card, "config.card")
        if record.config.schedule is not None and record.config.default_prompt is None:
            rule = "needs a prompt: its runs use the agent's default prompt"
            remedy = "set config.defaultPrompt too"
            raise Refused("config.schedule", None, rule, remedy=remedy)

    def _check_workspace(self, field: str, workspace_id: WorkspaceId) -> None:
        try:
            found = self._workspaces.record(workspace_id).id
        except NotFound:
            found = None
        if found != workspace_id:  # a name is not an id: another workspace may have it tomorrow
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
