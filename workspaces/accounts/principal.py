"""The principal on whose behalf each operation runs.

The principal determines the namespace of every file and the partition of every record. A path or a field
of a request never does. So a request has no way to name another account's storage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workspaces.accounts.stored_items import StoredItems, partition_of
from workspaces.ids import AccountId, UserId
from workspaces.revision import Author, RevisionSource
from workspaces.storage.records import Key, RecordStore

if TYPE_CHECKING:
    from workspaces.accounts.user import UserRecord

PARTITION = "accounts"
"""The partition of the accounts of a home."""

DEFAULT_ACCOUNT = Key(PARTITION, "default")
"""The record that points at the default account of a home."""


@dataclass(frozen=True, slots=True)
class Person:
    """The parts of a user that a revision names."""

    id: UserId
    name: str

    def author(self, source: RevisionSource) -> Author:
        return Author(self.name, self.id, source)


@dataclass(frozen=True, slots=True)
class Principal:
    """The acting user, its account and its rights."""

    account_id: AccountId
    user: Person
    owner: Person
    """The owner of the account. Manual edits of files on its machines are attributed to the owner."""
    may_configure: bool = True
    """True if the principal may change agents, workspaces, sandboxes, users, keys and the account."""

    @property
    def user_id(self) -> UserId:
        return self.user.id

    def author(self, source: RevisionSource) -> Author:
        """Return the principal as the author of a revision."""
        return self.user.author(source)

    def as_user(self, user: UserRecord, *, may_configure: bool) -> Principal:
        """Return a principal for another user of the same account."""
        return replace(self, user=Person(user.id, user.name), may_configure=may_configure)


def stored_owner(records: RecordStore, account: str | None = None) -> Principal | None:
    """Return the owner of an account, else of the default account, as they are stored.

    Return None if the home has no default account. No record is validated.

    Raises: NotFound for an unknown account.
    """
    pointer = records.get(DEFAULT_ACCOUNT)
    if pointer is None:
        return None
    found = StoredItems("account", PARTITION, records).get(account or pointer.value["id"])
    account_id = AccountId(found.value["id"])
    user = StoredItems("user", partition_of(account_id), records).get(found.value["ownerId"])
    owner = Person(UserId(user.value["id"]), user.value["name"])
    return Principal(account_id, owner, owner)
