"""Deletion of records: what is deleted together with a record, in which order, and the report about it.

Everything that belongs to a record is deleted first and the record last. So an interrupted deletion can be
repeated. Files and history of a workspace are moved to the trash of the home, where a person can still find
them. A key is removed immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.billing.ledger import Ledger
from harness.billing.limits import AccountLimiter
from harness.conversations.conversation import Conversations
from harness.sandboxes.record import SandboxRecord
from harness.sync.registry_state import RegistryState
from workspaces.accounts.account import AccountRecord, Accounts
from workspaces.accounts.key import Keys
from workspaces.accounts.principal import Principal
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.user import Users
from workspaces.clock import Clock
from workspaces.errors import Forbidden, InUse, OverLimit, Refused
from workspaces.home.workspaces import Workspaces, is_private_to
from workspaces.ids import AgentId, KeyId, UserId
from workspaces.remote.registry import Registry
from workspaces.timestamp import stamp_of


@dataclass(frozen=True, slots=True)
class DeletionReport:
    """The result of a deletion: everything that was deleted with the record."""

    id: str
    name: str
    trash: tuple[Path, ...] = ()
    """Directories that hold the files and histories of deleted workspaces until a person empties the
    trash."""
    keys: tuple[KeyId, ...] = ()
    conversations: int = 0
    runs: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "deleted": True,
            "id": self.id,
            "name": self.name,
            "trash": [str(place) for place in self.trash],
            "keys": list(self.keys),
            "conversations": self.conversations,
            **({"runs": self.runs} if self.runs else {}),
        }


@dataclass(frozen=True, slots=True)
class RecordDeletion:
    """The deletion of records of one account, in the name of one principal."""

    principal: Principal
    accounts: Accounts
    users: Users
    keys: Keys
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    agents: AgentCatalog
    conversations: Conversations
    ledger: Ledger
    limiter: AccountLimiter
    clock: Clock
    registry: Registry | None
    """The registry that announces deletions to other machines. None where nothing is shared."""
    registry_state: RegistryState | None
    """What this machine remembers of the registry. None where nothing is shared."""
    forget_webhooks: Callable[[], None]
    forget_rules: Callable[[], None]
    """Deletes what is forbidden in the account, and its forgettings."""
    delete_runs: Callable[[AgentId], int]
    """Deletes the runs of an agent, and returns their number."""
    delete_archives: Callable[[UserId], int]
    """Deletes the archived conversations of a user, and returns their number."""

    def workspace(self, reference: str, *, force: bool = False) -> DeletionReport:
        """Delete a workspace. With `force`, the mounts that agents have of it are left out from then on.

        Raises: InUse while agents mount it, unless `force` is given.
        """
        self._check_right("workspaces")
        record = self.workspaces.record(reference)
        _check_unused("workspace", record.name, self.agents.mounting(record.id), force)
        return DeletionReport(record.id, record.name, (self.workspaces.delete(record.id),))

    def sandbox(self, reference: str, *, force: bool = False) -> DeletionReport:
        """Delete a sandbox. With `force`, the mounts of agents that work in it are left out from then on.

        Raises: InUse while agents work in it, unless `force` is given.
        """
        self._check_right("sandboxes")
        record = self.sandboxes.get(reference)
        _check_unused("sandbox", record.name, self.agents.working_in(record.id), force)
        self.sandboxes.delete(record.id)
        return DeletionReport(record.id, record.name)

    def agent(self, reference: str) -> DeletionReport:
        """Delete an agent with its conversations, runs and private workspaces. The workspaces that it mounted
        stay.

        Raises: Busy while one of its turns runs.
        """
        self._check_right("agents")
        record = self.agents.get(reference)
        self._check_reachable(record.id)
        conversations = self.conversations.delete_with(record.id)
        runs = self.delete_runs(record.id)
        trash = self._private_workspaces(record.id)
        self.agents.delete(record.id)
        return DeletionReport(record.id, record.name, trash, conversations=conversations, runs=runs)

    def user(self, reference: str) -> DeletionReport:
        """Delete a user with the user's keys, conversations and private workspaces.

        Raises: Busy while a turn of the user runs.
        """
        self._check_right("users")
        record = self.users.get(reference)
        if record.id == self.principal.owner.id:
            remedy = "delete the account, or rename its owner"
            raise Refused("user", record.name, "is the owner of the account", remedy=remedy)
        self._check_reachable(record.id)
        keys = tuple(key.id for key in self.keys.list() if key.user_id == record.id)
        for key_id in keys:
            self.keys.revoke(key_id)
        conversations = self.conversations.delete_of(record.id)
        self.delete_archives(record.id)
        trash = self._private_workspaces(record.id)
        self.users.delete(record.id)
        return DeletionReport(record.id, record.name, trash, keys, conversations)

    def account(self) -> DeletionReport:
        """Delete the account with everything in it. Its keys go last, so that an interrupted caller can
        go on."""
        self._check_right("the account")
        record = self.accounts.get(self.principal.account_id)
        self._announce(record)
        conversations = runs = 0
        for agent in self.agents.list():
            conversations += self.conversations.delete_with(agent.id)
            runs += self.delete_runs(agent.id)
            self.agents.delete(agent.id)
        trash = tuple(
            self.workspaces.delete(workspace.id) for workspace in self.workspaces.list(private=True)
        )
        for user in self.users.list():
            self.delete_archives(user.id)
        for sandbox in self.sandboxes.list():
            self.sandboxes.delete(sandbox.id)
        keys = tuple(key.id for key in self.keys.list())
        for key_id in keys:
            self.keys.revoke(key_id)
        self.forget_webhooks()
        self.forget_rules()
        self.ledger.forget(record.id)
        self.limiter.forget(record.id)
        if self.registry_state is not None:
            self.registry_state.erase()
        self.accounts.delete(record.id)
        return DeletionReport(record.id, record.name, trash, keys, conversations, runs)

    def _private_workspaces(self, owner_id: AgentId | UserId) -> tuple[Path, ...]:
        return tuple(
            self.workspaces.delete(workspace.id)
            for workspace in self.workspaces.list(private=True)
            if is_private_to(workspace.id, owner_id)
        )

    def _announce(self, account: AccountRecord) -> None:
        """Tell other machines before anything is deleted, so that none joins the account or brings it
        back."""
        if self.registry is None or self.registry.read("account", account.id) is None:
            return
        now = stamp_of(self.clock.now())
        self.registry.write_tombstone("account", account.id, account.name, now)
        for agent in self.agents.list():
            self.registry.write_tombstone("agent", agent.id, agent.name, now)

    def _check_reachable(self, owner_id: AgentId | UserId) -> None:
        """Check that S3 answers if a shared workspace is private to this owner.

        Such a workspace is deleted for all machines, so they must be told of it.
        """
        if self.registry is not None and any(
            one.is_shared and is_private_to(one.id, owner_id)
            for one in self.workspaces.list(private=True)
        ):
            with suppress(Refused, OverLimit):  # S3 answers, whatever its content
                self.registry.read("account", self.principal.account_id)

    def _check_right(self, target: str) -> None:
        """Check the right first: a deletion that would stop half way is not started."""
        if not self.principal.may_configure:
            raise Forbidden(f"delete {target}")


def _check_unused(family: str, name: str, agents: list[AgentRecord], force: bool) -> None:
    if agents and not force:
        raise InUse(family, name, [agent.name for agent in agents])
