"""Accounts, their users, and the principal in whose name anything is done.

The namespace of every file and the partition of every record come from the principal, never from a
path or a field of a request: there is no way to name another account's storage.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.catalog import Catalog, Family
from workspaces.clock import Clock
from workspaces.configuration import Name
from workspaces.errors import Conflict, Unavailable
from workspaces.expect import ABSENT
from workspaces.ids import AccountId, UserId, new_id
from workspaces.parse import Shape, parse
from workspaces.records import Key, Put, RecordStore
from workspaces.revision import Author, Source
from workspaces.stamp import Stamp, stamp_of

DEFAULT_ACCOUNT = Key("accounts", "default")
"""Points at the account that a home was born with."""


class AccountRecord(Shape):
    id: AccountId
    name: Name
    owner_id: UserId
    created_at: Stamp
    updated_at: Stamp


class UserRecord(Shape):
    id: UserId
    name: Name
    external_id: Name | None = None
    """The platform's own id of this user."""
    created_at: Stamp
    updated_at: Stamp


USERS = Family("user", "usr", UserRecord)


@dataclass(frozen=True, slots=True)
class Principal:
    account_id: AccountId
    user_id: UserId
    user_name: str

    def author(self, source: Source) -> Author:
        """The principal as the author of a revision."""
        return Author(self.user_name, self.user_id, source)


def default_owner(records: RecordStore, clock: Clock) -> Principal:
    """The owner of the home's default account; both are made on first use, by whoever is first."""
    for _ in range(2):
        item = records.get(DEFAULT_ACCOUNT)
        if item is not None:
            return _owner(records, AccountId(item.value["id"]), clock)
        try:
            _create_account(records, clock)
        except Conflict:
            continue
    raise Unavailable("home", "its default account cannot be read back")


def _create_account(records: RecordStore, clock: Clock) -> None:
    now = stamp_of(clock.now())
    account_id, owner_id = AccountId(new_id("acct")), UserId(new_id("usr"))
    account = AccountRecord(
        id=account_id, name="default", owner_id=owner_id, created_at=now, updated_at=now
    )
    # Three separate writes, the pointer last: what a crash leaves is unreachable and harmless.
    Catalog(USERS, account_id, records, clock).create({"name": "owner"}, record_id=owner_id)
    records.write(Put(Key("accounts", account_id), account.as_json(), expect=ABSENT))
    records.write(Put(DEFAULT_ACCOUNT, {"id": account_id}, expect=ABSENT))


def _owner(records: RecordStore, account_id: AccountId, clock: Clock) -> Principal:
    item = records.get(Key("accounts", account_id))
    if item is None:
        raise Unavailable("home", f"its account {account_id} is missing from the record store")
    account = parse(AccountRecord, item.value, within="account")
    owner = Catalog(USERS, account_id, records, clock).get(account.owner_id)
    return Principal(account_id, account.owner_id, owner.name)
