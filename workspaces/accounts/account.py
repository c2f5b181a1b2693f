"""Accounts, their configuration and their owners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from workspaces.accounts.principal import DEFAULT_ACCOUNT, PARTITION, Person, Principal
from workspaces.accounts.record_catalog import Catalog, RecordKind
from workspaces.accounts.stored_items import partition_of
from workspaces.accounts.user import Users
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Forbidden, Refused
from workspaces.ids import AccountId, UserId, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import Delete, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

TURNS_PER_MINUTE_MAX = 6000
"""A hundred a second: more than one record store can count."""

RUNNING_TURNS_MAX = 1000
"""Each running turn has its own item, and a new turn reads all of them to find a free one."""

DOLLARS_MAX = 1e6
"""More is a typing error."""

LEARNING_DOLLARS_PER_DAY = 0.5
"""Some fifty passes of the default model: enough for a day of one person's work."""

JOINING = Key(PARTITION, "joining")
"""The record that exists while the home joins an existing account as another machine."""


class UsersConfig(StrictModel):
    autocreate: bool = True
    """Create a user when a platform first names it."""


class AccountLimits(StrictModel):
    """The limits of an account. A missing limit means unlimited use."""

    turns_per_minute: Annotated[int, Field(ge=1, le=TURNS_PER_MINUTE_MAX)] | None = None
    """Turns that begin in one minute."""
    running_turns: Annotated[int, Field(ge=1, le=RUNNING_TURNS_MAX)] | None = None
    """Turns that run at the same time."""
    dollars_per_day: Annotated[float, Field(ge=0, le=DOLLARS_MAX, allow_inf_nan=False)] | None = (
        None
    )
    """Dollars of one UTC day. A turn that would begin above it is refused."""
    dollars_per_month: Annotated[float, Field(ge=0, le=DOLLARS_MAX, allow_inf_nan=False)] | None = (
        None
    )
    """Dollars of one month. A turn that would begin above it is refused."""

    learning_dollars_per_day: Annotated[float, Field(ge=0, le=DOLLARS_MAX, allow_inf_nan=False)] = (
        LEARNING_DOLLARS_PER_DAY
    )
    """Dollars of one UTC day for reading conversations in the background. Above it nothing is read; 0 turns
    it off."""

    @property
    def are_on_money(self) -> bool:
        return self.dollars_per_day is not None or self.dollars_per_month is not None


class AccountConfig(StrictModel):
    users: UsersConfig = UsersConfig()
    limits: AccountLimits = AccountLimits()


class AccountRecord(StrictModel):
    id: AccountId
    name: Name
    owner_id: UserId
    config: AccountConfig = AccountConfig()
    created_at: Stamp
    updated_at: Stamp


ACCOUNTS = RecordKind("account", "acct", AccountRecord, fixed=("ownerId",))


class Accounts(Catalog[AccountRecord]):
    """The accounts of a home, for the operator of the home."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        super().__init__(ACCOUNTS, PARTITION, records, clock)

    def add(
        self,
        fields: Mapping[str, Any],
        *,
        record_id: str | None = None,
        owner_name: str = "owner",
    ) -> AccountRecord:
        """Create an account and its owner.

        The account's record is written last. Records that a crash leaves before are unreachable and
        harmless.
        """
        if "ownerId" in fields:
            raise Refused("ownerId", fields["ownerId"], "is set by the system")
        account_id, owner_id = AccountId(record_id or new_id("acct")), UserId(new_id("usr"))
        account = {**fields, "ownerId": owner_id}
        self.check_new(account)
        users = Users(account_id, self._records, self._clock)
        users.add({"name": owner_name}, record_id=owner_id)
        return super().add(account, record_id=account_id)

    @until_written("the default account")
    def default(self) -> AccountRecord:
        """Return the default account. The first caller creates it.

        Raises: Refused if `harness join` was interrupted.
        """
        item = self._records.get(DEFAULT_ACCOUNT)
        if item is not None:
            return self.get(item.value["id"])
        joining = self._records.get(JOINING)
        if joining is not None:
            location = str(joining.value["location"])
            rule = "was not joined completely: `harness join` was interrupted"
            raise Refused("home", location, rule, remedy=f"run `harness join {location}` again")
        account = self._create_default()
        self._records.write(Put(DEFAULT_ACCOUNT, {"id": account.id}, expect=ABSENT))
        return account

    def has_default(self) -> bool:
        """Return True if the home has a default account, in which commands act unless they name another."""
        return self._records.get(DEFAULT_ACCOUNT) is not None

    def is_default(self, account: AccountRecord) -> bool:
        """Return True if commands of the home act in this account."""
        default = self._records.get(DEFAULT_ACCOUNT)
        return default is not None and default.value["id"] == account.id

    def make_default(self, account: AccountRecord) -> None:
        """Set the account in which commands act from now on."""
        self._records.write(Put(DEFAULT_ACCOUNT, {"id": account.id}))

    def owner(self, account: AccountRecord) -> Principal:
        """Return the principal that may do everything in the account."""
        owner = Users(account.id, self._records, self._clock).get(account.owner_id)
        person = Person(owner.id, owner.name)
        return Principal(account.id, person, person)

    def member(self, account_id: AccountId, user_id: UserId) -> Principal:
        """Return the principal of this user. It may not change records, unless the user is the owner.

        Raises: NotFound if the account or the user does not exist.
        """
        owner = self.owner(self.get(account_id))
        if user_id == owner.user_id:
            return owner
        user = Users(account_id, self._records, self._clock).get(user_id)
        return owner.as_user(user, may_configure=False)

    def delete(self, reference: str) -> AccountRecord:
        """Delete the account's record and all other records in its partition.

        The caller has already deleted the data that those records describe.
        """
        account = self.get(reference)
        users = f"{partition_of(account.id)} / user"
        items = with_prefix(self._records, partition_of(account.id), "")
        for item in items:
            if not str(item.key).startswith(users):
                self._records.write(Delete(item.key))
        pointer = self._records.get(DEFAULT_ACCOUNT)
        if pointer is not None and pointer.value["id"] == account.id:
            self._records.write(Delete(DEFAULT_ACCOUNT, expect=pointer.counter))
        super().delete(account.id)
        # Users last: an account that can be found has its owner, so the call can be repeated.
        for item in items:
            self._records.write(Delete(item.key))
        return account

    def _create_default(self) -> AccountRecord:
        """Create the default account, or return the one that an interrupted call has created."""
        try:
            return self.add({"name": "default"})
        except AlreadyExists:  # the interrupted call did not write the pointer to it
            return self.get("default")


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """The account of a principal, with the principal's rights."""

    principal: Principal
    accounts: Accounts

    def get(self) -> AccountRecord:
        return self.accounts.get(self.principal.account_id)

    def patch(self, patch: Mapping[str, Any]) -> AccountRecord:
        if not self.principal.may_configure:
            raise Forbidden("change the account")
        return self.accounts.patch(self.principal.account_id, patch)


def default_owner(records: RecordStore, clock: Clock) -> Principal:
    """Return the owner of the home's default account."""
    accounts = Accounts(records, clock)
    return accounts.owner(accounts.default())
