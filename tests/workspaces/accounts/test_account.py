"""Accounts: the default account, owners, names, deletion."""

from __future__ import annotations

import pytest

from workspaces.accounts.account import Accounts, default_owner
from workspaces.accounts.user import Users
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.storage.in_memory import MemoryRecords


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def accounts(records: MemoryRecords, clock: ManualClock) -> Accounts:
    return Accounts(records, clock)


def test_the_default_account_of_a_home_is_created_on_first_use(
    accounts: Accounts, records: MemoryRecords, clock: ManualClock
) -> None:
    owner = default_owner(records, clock)
    assert owner == default_owner(records, clock)
    assert owner.may_configure
    assert owner.user == owner.owner
    assert [account.id for account in accounts.list()] == [owner.account_id]


def test_a_new_account_has_its_own_owner(accounts: Accounts) -> None:
    first, second = accounts.add({"name": "one"}), accounts.add({"name": "two"})
    assert accounts.owner(first).account_id == first.id
    assert accounts.owner(first).user_id != accounts.owner(second).user_id
    assert [account.name for account in accounts.list()] == ["one", "two"]


def test_two_accounts_cannot_share_a_name(accounts: Accounts) -> None:
    accounts.add({"name": "one"})
    with pytest.raises(AlreadyExists):
        accounts.add({"name": " one "})


@pytest.mark.parametrize("field", ["id", "ownerId", "createdAt", "updatedAt", "colour"])
def test_the_system_fields_of_an_account_cannot_be_set(accounts: Accounts, field: str) -> None:
    with pytest.raises(Refused) as made:
        accounts.add({"name": "one", field: "usr_1"})
    assert made.value.field == field
    account = accounts.add({"name": "one"})
    with pytest.raises(Refused) as patched:
        accounts.patch(account.id, {field: "usr_1"})
    assert patched.value.field == field
    assert accounts.get(account.id) == account


def test_a_forgotten_account_leaves_no_record_in_its_partition(
    accounts: Accounts, records: MemoryRecords, clock: ManualClock
) -> None:
    account, other = accounts.add({"name": "one"}), accounts.add({"name": "two"})
    Users(account.id, records, clock).add({"externalId": "alice"})
    accounts.delete(account.id)
    with pytest.raises(NotFound):
        accounts.get(account.id)
    assert records.scan(f"account:{account.id}") == []
    assert accounts.owner(other).user.name == "owner"


def test_a_deleted_default_account_is_replaced_by_a_new_default_account(
    accounts: Accounts, records: MemoryRecords, clock: ManualClock
) -> None:
    first = accounts.default()
    accounts.delete(first.id)
    assert default_owner(records, clock).account_id != first.id


def test_an_interrupted_creation_of_the_default_account_is_completed(accounts: Accounts) -> None:
    account = accounts.add({"name": "default"})
    assert accounts.default() == account
