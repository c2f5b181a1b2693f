"""Accounts, and the principal in whose name anything is done.

The namespace of every file and the partition of every record come from the principal, never from a
path or a field of a request: there is no way to name another account's storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from workspaces.accounts.record_catalog import Catalog, RecordKind, partition_of
from workspaces.accounts.user import UserRecord, Users
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AlreadyExists, Conflict, Forbidden, Refused, Unavailable
from workspaces.ids import AccountId, UserId, new_id
from workspaces.revision import Author, RevisionSource
from workspaces.storage.records import Delete, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

PARTITION = "accounts"

DEFAULT_ACCOUNT = Key(PARTITION, "default")
"""Points at the account that a home was born with."""

TURNS_PER_MINUTE_MAX = 6000
"""A hundred a second: more than one store of records can count."""

RUNNING_TURNS_MAX = 1000
"""Each has an item of its own, and all are looked at to find a free one."""

DOLLARS_MAX = 1e6
"""More is a typing error."""

JOINING = Key(PARTITION, "joining")
"""Stands while the home becomes another machine of an account that is there already."""


class UsersConfig(StrictModel):
    autocreate: bool = True
    """Make a user when a platform first names it."""


class AccountLimits(StrictModel):
    """What the account may use; what is not stated is not limited."""

    turns_per_minute: Annotated[int, Field(ge=1, le=TURNS_PER_MINUTE_MAX)] | None = None
    running_turns: Annotated[int, Field(ge=1, le=RUNNING_TURNS_MAX)] | None = None
    dollars_per_day: Annotated[float, Field(ge=0, le=DOLLARS_MAX, allow_inf_nan=False)] | None = (
        None
    )
    dollars_per_month: Annotated[float, Field(ge=0, le=DOLLARS_MAX, allow_inf_nan=False)] | None = (
        None
    )

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


@dataclass(frozen=True, slots=True)
class Person:
    """A user, as far as a revision names one."""

    id: UserId
    name: str

    def author(self, source: RevisionSource) -> Author:
        return Author(self.name, self.id, source)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts, in which account, with which right."""

    account_id: AccountId
    user: Person
    owner: Person
    """Of the account: whoever edits files by hand on one of its machines."""
    may_configure: bool = True
    """Whether it may change agents, workspaces, sandboxes, users, keys and the account."""

    @property
    def user_id(self) -> UserId:
        return self.user.id

    def author(self, source: RevisionSource) -> Author:
        """The principal as the author of a revision."""
        return self.user.author(source)

    def as_user(self, user: UserRecord, *, may_configure: bool) -> Principal:
        """Another user of the same account."""
        return replace(self, user=Person(user.id, user.name), may_configure=may_configure)


class Accounts:
    """All accounts of a home: for the one who runs it."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._catalog = Catalog(ACCOUNTS, PARTITION, records, clock)

    def create(self, fields: Mapping[str, Any], *, owner_name: str = "owner") -> AccountRecord:
        """An account and its owner. The account comes last: what a crash leaves before is
        unreachable and harmless."""
        if "ownerId" in fields:
            raise Refused("ownerId", fields["ownerId"], "is given by the system")
        account_id, owner_id = AccountId(new_id("acct")), UserId(new_id("usr"))
        stated = {**fields, "ownerId": owner_id}
        self._catalog.check_new(stated)
        users = Users(account_id, self._records, self._clock)
        users.create({"name": owner_name}, record_id=owner_id)
        return self._catalog.create(stated, record_id=account_id)

    def get(self, reference: str) -> AccountRecord:
        return self._catalog.get(reference)

    def list(self) -> list[AccountRecord]:
        return self._catalog.list()

    def patch(self, reference: str, patch: Mapping[str, Any]) -> AccountRecord:
        return self._catalog.patch(reference, patch)

    def adopt(
        self, stated: Mapping[str, Any], *, instead_of: Mapping[str, Any] | None
    ) -> AccountRecord:
        """See `Catalog.adopt`."""
        return self._catalog.adopt(stated, instead_of=instead_of)

    def default(self) -> AccountRecord:
        """The account the home was born with, made on first use by whoever is first."""
        for _ in range(2):
            item = self._records.get(DEFAULT_ACCOUNT)
            if item is not None:
                return self.get(item.value["id"])
            joining = self._records.get(JOINING)
            if joining is not None:
                place = str(joining.value["location"])
                rule = "was being joined, and that was interrupted"
                raise Refused("home", place, rule, remedy=f"run `harness join {place}` again")
            try:
                account = self._named_default()
                self._records.write(Put(DEFAULT_ACCOUNT, {"id": account.id}, expect=ABSENT))
            except Conflict:
                continue
        raise Unavailable("home", "its default account cannot be read back")

    def has_default(self) -> bool:
        """Whether the home has an account that commands act in unless another is named."""
        return self._records.get(DEFAULT_ACCOUNT) is not None

    def make_default(self, account: AccountRecord) -> None:
        """The account that commands act in from now on."""
        self._records.write(Put(DEFAULT_ACCOUNT, {"id": account.id}))

    def owner(self, account: AccountRecord) -> Principal:
        """The principal that may do everything in the account."""
        owner = Users(account.id, self._records, self._clock).get(account.owner_id)
        person = Person(owner.id, owner.name)
        return Principal(account.id, person, person)

    def member(self, account_id: AccountId, user_id: UserId) -> Principal:
        """The principal that acts as this user and changes no records; the owner, if it is that.
        NotFound when either is gone."""
        owner = self.owner(self.get(account_id))
        if user_id == owner.user_id:
            return owner
        user = Users(account_id, self._records, self._clock).get(user_id)
        return owner.as_user(user, may_configure=False)

    def forget(self, account: AccountRecord) -> None:
        """The record and everything that still lies in the account's partition; the caller has
        deleted what the records stand for."""
        users = f"{partition_of(account.id)} / user"
        items = with_prefix(self._records, partition_of(account.id), "")
        for item in items:
            if not str(item.key).startswith(users):
                self._records.write(Delete(item.key))
        pointer = self._records.get(DEFAULT_ACCOUNT)
        if pointer is not None and pointer.value["id"] == account.id:
            self._records.write(Delete(DEFAULT_ACCOUNT, expect=pointer.counter))
        self._catalog.delete(account.id)
        for item in items:  # an account that can be found has its owner: this can be repeated
            self._records.write(Delete(item.key))

    def _named_default(self) -> AccountRecord:
        """A birth that was interrupted has an account already, only nothing that points at it."""
        try:
            return self.create({"name": "default"})
        except AlreadyExists:
            return self.get("default")


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """The account of a principal, as the principal may see and change it."""

    principal: Principal
    accounts: Accounts

    def get(self) -> AccountRecord:
        return self.accounts.get(self.principal.account_id)

    def patch(self, patch: Mapping[str, Any]) -> AccountRecord:
        if not self.principal.may_configure:
            raise Forbidden("change the account")
        return self.accounts.patch(self.principal.account_id, patch)


def default_owner(records: RecordStore, clock: Clock) -> Principal:
    """The owner of the home's default account."""
    accounts = Accounts(records, clock)
    return accounts.owner(accounts.default())
