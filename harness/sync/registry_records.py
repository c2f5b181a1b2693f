"""The account's records that machines share through the registry, with one adapter for each kind of record.

An adapter says what is published of its records, which records of other machines are wanted here, and what
happens to a record that was deleted elsewhere.

**Sandboxes are not shared.** Each machine decides for itself what may run on it, and with which network.
Nobody who can write to the bucket may make that decision. An agent is published with the *name* of its
sandbox. A machine without a sandbox of that name creates one that allows nothing (read-only, no network).
The machine's owner may then widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.sandboxes.record import SandboxRecord
from harness.sync.record_deletion import RecordDeletion
from harness.sync.registry_sync import RecordAdapter
from workspaces.accounts.account import Accounts
from workspaces.accounts.principal import Principal
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.stored_workspace import is_private
from workspaces.accounts.user import Users
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.home.trash import TrashEntry
from workspaces.home.workspaces import Workspaces, shared_json
from workspaces.ids import WorkspaceId, looks_like_id
from workspaces.remote.registry import RegistryEntry, RegistryKind, Tombstone
from workspaces.remote.registry_merge import RecordJson
from workspaces.validation import parse

CONFINED = {"mode": "ro", "network": "none"}
"""The configuration of a sandbox that is created here because an agent of another machine names it."""


def record_adapters(
    principal: Principal,
    accounts: Accounts,
    users: Users,
    workspaces: Workspaces,
    sandboxes: Catalog[SandboxRecord],
    agents: AgentCatalog,
    deletion: RecordDeletion,
) -> Mapping[RegistryKind, RecordAdapter]:
    """Return the adapter of each kind of record, for one principal."""
    return {
        "account": AccountAdapter(principal, accounts),
        "user": UserAdapter(users, deletion),
        "workspace": WorkspaceAdapter(workspaces, users, agents),
        "agent": AgentAdapter(agents, workspaces, sandboxes, deletion),
    }


@dataclass(frozen=True, slots=True)
class AccountAdapter:
    """The adapter for the account's own record."""

    principal: Principal
    accounts: Accounts

    def here(self) -> Mapping[str, RecordJson | None]:
        record = self.accounts.get(self.principal.account_id)
        return {record.id: record.as_json()}

    def wants(self, record: RecordJson) -> bool:
        del record
        return False

    def apply(self, record: RecordJson, instead_of: RecordJson | None) -> None:
        self.accounts.adopt(record, instead_of=instead_of)

    def remove_local(self, there: RegistryEntry) -> TrashEntry | None:
        name = self.accounts.get(there.id).name
        remedy = (
            f"nothing of it is shared any more; `harness account rm {name} --force` removes it here"
        )
        raise Refused("account", name, "was deleted on another machine", remedy=remedy)


@dataclass(frozen=True, slots=True)
class UserAdapter:
    """The adapter for users."""

    users: Users
    deletion: RecordDeletion

    def here(self) -> Mapping[str, RecordJson | None]:
        return {user.id: user.as_json() for user in self.users.list()}

    def wants(self, record: RecordJson) -> bool:
        del record
        return True

    def apply(self, record: RecordJson, instead_of: RecordJson | None) -> None:
        self.users.adopt(record, instead_of=instead_of)

    def remove_local(self, there: RegistryEntry) -> TrashEntry | None:
        self.deletion.user(there.id)
        return None


@dataclass(frozen=True, slots=True)
class WorkspaceAdapter:
    """The adapter for workspaces."""

    workspaces: Workspaces
    users: Users
    agents: AgentCatalog

    def here(self) -> Mapping[str, RecordJson | None]:
        records = self.workspaces.list(private=True)
        return {record.id: shared_json(record) if record.is_shared else None for record in records}

    def wants(self, record: RecordJson) -> bool:
        """Return True if the workspace is private, and all its owners are known on this machine."""
        workspace_id = WorkspaceId(str(record.get("id")))
        if not is_private(workspace_id):
            return False
        parts = workspace_id.split(":")
        owners = zip(parts[::2], parts[1::2], strict=True)
        return all(self._is_here(kind, owner_id) for kind, owner_id in owners)

    def apply(self, record: RecordJson, instead_of: RecordJson | None) -> None:
        self.workspaces.adopt(record, instead_of=instead_of)

    def remove_local(self, there: RegistryEntry) -> TrashEntry | None:
        workspace_id = WorkspaceId(there.id)
        if isinstance(there, Tombstone):
            return self.workspaces.disposal.move_to_trash(
                workspace_id, why="elsewhere", name=there.name
            )
        return self.workspaces.disposal.move_to_trash(workspace_id, why="over")

    def _is_here(self, kind: str, owner_id: str) -> bool:
        get: Callable[[str], object] = self.agents.get if kind == "agent" else self.users.get
        try:
            get(owner_id)
        except NotFound:
            return False
        return True


@dataclass(frozen=True, slots=True)
class AgentAdapter:
    """The adapter for agents."""

    agents: AgentCatalog
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    deletion: RecordDeletion

    def here(self) -> Mapping[str, RecordJson | None]:
        names: dict[str, str] = {one.id: one.name for one in self.sandboxes.list()}
        return {
            agent.id: _with_sandboxes(agent.as_json(), lambda one: names.get(one, one))
            for agent in self.agents.list()
        }

    def wants(self, record: RecordJson) -> bool:
        """Return True if the agent mounts no workspace, or one that is on this machine."""
        try:
            config = parse(AgentRecord, record, within="agent").config
        except Refused:
            return True  # invalid: applying it reports the reason
        here = {record.id for record in self.workspaces.list()}
        return not config.workspaces or any(m.workspace_id in here for m in config.workspaces)

    def apply(self, record: RecordJson, instead_of: RecordJson | None) -> None:
        parse(AgentRecord, record, within="agent")
        before = None if instead_of is None else self._with_local_sandboxes(instead_of)
        self.agents.adopt(self._with_local_sandboxes(record), instead_of=before)

    def remove_local(self, there: RegistryEntry) -> TrashEntry | None:
        self.deletion.agent(there.id)
        return None

    def _with_local_sandboxes(self, record: RecordJson) -> dict[str, Any]:
        """Return the record with the ids of this machine's sandboxes in place of names."""
        return _with_sandboxes(record, self._sandbox_id)

    def _sandbox_id(self, name: str) -> str:
        """Return the id of the sandbox of this name; create the sandbox if it is missing.

        A name that looks like an id was the id of a deleted sandbox. It is returned as it is.
        """
        if looks_like_id(name):
            return name
        try:
            return self.sandboxes.get(name).id
        except NotFound:
            pass
        try:
            return self.sandboxes.add({"name": name, "config": CONFINED}).id
        except AlreadyExists:  # another process created it at the same moment
            return self.sandboxes.get(name).id


def _with_sandboxes(agent: RecordJson, translate: Callable[[str], str]) -> dict[str, Any]:
    """Return the record with every sandbox name translated. None stays None: the agent has no sandbox."""

    def with_sandbox(part: Mapping[str, Any]) -> dict[str, Any]:
        sandbox = part.get("sandbox")
        return {**part, "sandbox": translate(sandbox)} if isinstance(sandbox, str) else {**part}

    config = cast("Mapping[str, Any]", agent.get("config", {}))
    mounts = [with_sandbox(mount) for mount in config.get("workspaces", ())]
    workspaces = {"workspaces": mounts} if "workspaces" in config else {}
    return {**agent, "config": {**with_sandbox(config), **workspaces}}
