"""What the roster of an account is about: its records as this machine has them, kind by kind.

Each kind says what other machines are told of its records, which of theirs are to come here, and what
becomes of one that was deleted there.

**Sandboxes do not travel.** What may run on a machine, and with which network, is that machine's own
decision, and nobody who can write to the place may make it. An agent is told with the *name* of its
sandbox. A machine that has none of that name makes one that allows nothing (read-only, no network); its
owner widens it, or does not.
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
from workspaces.accounts.account import Accounts, Principal
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.user import Users
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.home.trash import TrashEntry
from workspaces.home.workspaces import Workspaces, is_private, shared_json
from workspaces.ids import WorkspaceId, looks_like_id
from workspaces.remote.registry import RegistryEntry, RegistryKind, Tombstone
from workspaces.remote.registry_merge import RecordJson
from workspaces.validation import parse

CONFINED = {"mode": "ro", "network": "none"}
"""A sandbox that another machine's agent brought the name of."""


def record_adapters(
    principal: Principal,
    accounts: Accounts,
    users: Users,
    workspaces: Workspaces,
    sandboxes: Catalog[SandboxRecord],
    agents: AgentCatalog,
    deletion: RecordDeletion,
) -> Mapping[RegistryKind, RecordAdapter]:
    return {
        "account": AccountAdapter(principal, accounts),
        "user": UserAdapter(users, deletion),
        "workspace": WorkspaceAdapter(workspaces, users, agents),
        "agent": AgentAdapter(agents, workspaces, sandboxes, deletion),
    }


@dataclass(frozen=True, slots=True)
class AccountAdapter:
    principal: Principal
    accounts: Accounts

    def here(self) -> Mapping[str, RecordJson | None]:
        record = self.accounts.get(self.principal.account_id)
        return {record.id: record.as_json()}

    def wants(self, told: RecordJson) -> bool:
        del told
        return False

    def take(self, told: RecordJson, instead_of: RecordJson | None) -> None:
        self.accounts.adopt(told, instead_of=instead_of)

    def bury(self, there: RegistryEntry) -> TrashEntry | None:
        name = self.accounts.get(there.id).name
        remedy = (
            f"nothing of it is shared any more; `harness account rm {name} --force` removes it here"
        )
        raise Refused("account", name, "was deleted on another machine", remedy=remedy)


@dataclass(frozen=True, slots=True)
class UserAdapter:
    users: Users
    deletion: RecordDeletion

    def here(self) -> Mapping[str, RecordJson | None]:
        return {user.id: user.as_json() for user in self.users.list()}

    def wants(self, told: RecordJson) -> bool:
        del told
        return True

    def take(self, told: RecordJson, instead_of: RecordJson | None) -> None:
        self.users.adopt(told, instead_of=instead_of)

    def bury(self, there: RegistryEntry) -> TrashEntry | None:
        self.deletion.user(there.id)
        return None


@dataclass(frozen=True, slots=True)
class WorkspaceAdapter:
    workspaces: Workspaces
    users: Users
    agents: AgentCatalog

    def here(self) -> Mapping[str, RecordJson | None]:
        records = self.workspaces.list(private=True)
        return {record.id: shared_json(record) if record.is_shared else None for record in records}

    def wants(self, told: RecordJson) -> bool:
        """What is private to somebody who is here."""
        workspace_id = WorkspaceId(str(told.get("id")))
        if not is_private(workspace_id):
            return False
        parts = workspace_id.split(":")
        owners = zip(parts[::2], parts[1::2], strict=True)
        return all(self._is_here(kind, owner_id) for kind, owner_id in owners)

    def take(self, told: RecordJson, instead_of: RecordJson | None) -> None:
        self.workspaces.adopt(told, instead_of=instead_of)

    def bury(self, there: RegistryEntry) -> TrashEntry | None:
        workspace_id = WorkspaceId(there.id)
        if isinstance(there, Tombstone):
            return self.workspaces.move_to_trash(workspace_id, why="elsewhere", name=there.name)
        return self.workspaces.move_to_trash(workspace_id, why="over")

    def _is_here(self, kind: str, owner_id: str) -> bool:
        get: Callable[[str], object] = self.agents.get if kind == "agent" else self.users.get
        try:
            get(owner_id)
        except NotFound:
            return False
        return True


@dataclass(frozen=True, slots=True)
class AgentAdapter:
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

    def wants(self, told: RecordJson) -> bool:
        """One that mounts nothing, or something that is here."""
        try:
            config = parse(AgentRecord, told, within="agent").config
        except Refused:
            return True  # and it is said why not when it is taken
        here = {record.id for record in self.workspaces.list()}
        return not config.workspaces or any(m.workspace_id in here for m in config.workspaces)

    def take(self, told: RecordJson, instead_of: RecordJson | None) -> None:
        parse(AgentRecord, told, within="agent")
        before = None if instead_of is None else self._own(instead_of)
        self.agents.adopt(self._own(told), instead_of=before)

    def bury(self, there: RegistryEntry) -> TrashEntry | None:
        self.deletion.agent(there.id)
        return None

    def _own(self, told: RecordJson) -> dict[str, Any]:
        """With the ids of this machine's sandboxes."""
        return _with_sandboxes(told, self._named)

    def _named(self, name: str) -> str:
        """The id of the sandbox of this name; what looks like an id was the id of one that is gone."""
        if looks_like_id(name):
            return name
        try:
            return self.sandboxes.get(name).id
        except NotFound:
            pass
        try:
            return self.sandboxes.create({"name": name, "config": CONFINED}).id
        except AlreadyExists:  # made in the same instant
            return self.sandboxes.get(name).id


def _with_sandboxes(agent: RecordJson, translated: Callable[[str], str]) -> dict[str, Any]:
    """The record with each sandbox that it names called otherwise; None stays: it is none."""

    def renamed(part: Mapping[str, Any]) -> dict[str, Any]:
        sandbox = part.get("sandbox")
        return {**part, "sandbox": translated(sandbox)} if isinstance(sandbox, str) else {**part}

    config = cast("Mapping[str, Any]", agent.get("config", {}))
    mounts = [renamed(mount) for mount in config.get("workspaces", ())]
    kept = {"workspaces": mounts} if "workspaces" in config else {}
    return {**agent, "config": {**renamed(config), **kept}}
