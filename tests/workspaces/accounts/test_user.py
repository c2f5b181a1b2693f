"""Users of an account: names, external ids of a platform, rights."""

from __future__ import annotations

import pytest

from workspaces.accounts.user import EXTERNAL_ID_CHARACTERS_MAX, Users
from workspaces.clock import ManualClock
from workspaces.errors import AlreadyExists, Forbidden, NotFound, Refused
from workspaces.ids import AccountId
from workspaces.storage.in_memory import MemoryRecords


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def users(records: MemoryRecords, clock: ManualClock) -> Users:
    return Users(AccountId("acct_1"), records, clock)


def test_a_user_is_found_by_its_id_and_by_its_external_id(users: Users) -> None:
    alice = users.add({"externalId": "auth0|7", "name": "Alice"})
    assert users.get(alice.id) == users.get("auth0|7") == alice


def test_users_with_external_ids_may_share_a_name(users: Users) -> None:
    first = users.add({"externalId": "7", "name": "Alice"})
    second = users.add({"externalId": "8", "name": "Alice"})
    assert [user.id for user in users.list()] in ([first.id, second.id], [second.id, first.id])
    with pytest.raises(NotFound):
        users.get("Alice")


def test_external_ids_are_unique_and_so_are_names_of_users_without_an_external_id(
    users: Users,
) -> None:
    users.add({"externalId": "7"})
    users.add({"name": "Bob"})
    with pytest.raises(AlreadyExists):
        users.add({"externalId": "7", "name": "another"})
    with pytest.raises(AlreadyExists):
        users.add({"name": "Bob"})
    users.add({"externalId": "Bob"})  # an id of the platform's is no name


def test_a_user_is_created_when_a_platform_first_names_an_external_id(users: Users) -> None:
    alice = users.named_by_platform("auth0|7", autocreate=True)
    assert (alice.name, alice.external_id) == ("auth0|7", "auth0|7")
    assert users.named_by_platform("auth0|7", autocreate=False) == alice
    assert users.named_by_platform(alice.id, autocreate=False) == alice


def test_a_user_is_not_created_if_autocreate_is_off(users: Users) -> None:
    with pytest.raises(NotFound):
        users.named_by_platform("auth0|7", autocreate=False)
    assert users.list() == []


def test_a_platform_user_named_owner_is_not_the_account_owner(users: Users) -> None:
    owner = users.add({"name": "owner"})
    assert users.named_by_platform("owner", autocreate=True).id != owner.id


def test_an_external_id_that_looks_like_a_user_id_is_refused(users: Users) -> None:
    foreign = "usr_0123456789abcdef01234567"
    with pytest.raises(NotFound):
        users.named_by_platform(foreign, autocreate=True)
    with pytest.raises(Refused) as caught:
        users.add({"externalId": foreign})
    assert caught.value.field == "externalId"


@pytest.mark.parametrize("bad", ["", "two\nlines", "x" * (EXTERNAL_ID_CHARACTERS_MAX + 1), 7])
def test_a_bad_external_id_is_refused(users: Users, bad: object) -> None:
    with pytest.raises(Refused) as caught:
        users.add({"externalId": bad, "name": "someone"})
    assert caught.value.field == "externalId"


def test_a_user_is_created_for_an_external_id_of_the_maximum_length(users: Users) -> None:
    longest = "x" * EXTERNAL_ID_CHARACTERS_MAX
    assert users.named_by_platform(longest, autocreate=True).external_id == longest


def test_a_user_that_gains_an_external_id_is_found_only_by_the_external_id(users: Users) -> None:
    bob = users.add({"name": "Bob"})
    users.patch("Bob", {"externalId": "9"})
    assert users.get("9").id == bob.id
    with pytest.raises(NotFound):
        users.get("Bob")
    users.patch("9", {"externalId": None})
    assert users.get("Bob").id == bob.id


def test_a_principal_that_may_not_change_users_is_forbidden_to(
    users: Users, records: MemoryRecords, clock: ManualClock
) -> None:
    bob = users.add({"name": "Bob"})
    reader = Users(AccountId("acct_1"), records, clock, may_change=False)
    assert reader.get("Bob") == bob
    for attempt in (
        lambda: reader.add({"name": "Eve"}),
        lambda: reader.patch("Bob", {"name": "Eve"}),
        lambda: reader.delete("Bob"),
    ):
        with pytest.raises(Forbidden):
            attempt()
    assert users.list() == [bob]
