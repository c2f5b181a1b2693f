"""Keys of an account: secrets, users, expiry, rotation."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from workspaces.accounts.key import Keys, owner_of_key
from workspaces.clock import ManualClock
from workspaces.errors import Forbidden, NotFound, Refused
from workspaces.ids import AccountId, UserId
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import with_prefix
from workspaces.timestamp import stamp_of

ACCOUNT = AccountId("acct_1")
LATE = "9999-12-31T23:59:59-14:00"
"""In the year 10 000, in UTC."""


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def keys(records: MemoryRecords, clock: ManualClock) -> Keys:
    return Keys(ACCOUNT, records, clock)


def test_a_key_is_found_by_its_secret_alone(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    record, secret = keys.create(label="laptop")
    assert re.fullmatch(r"wh_[A-Za-z0-9_-]{43}", secret)
    holder = owner_of_key(secret, records, clock)
    assert holder is not None
    assert (holder.account_id, holder.key.id) == (ACCOUNT, record.id)
    for wrong in ("", "wh_", secret[:-1], secret + "x", secret.upper(), record.id, "\ud800"):
        assert owner_of_key(wrong, records, clock) is None


def test_the_secret_of_a_user_key_has_its_own_prefix(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    _, secret = keys.create(user_id=UserId("usr_1"))
    assert re.fullmatch(r"whu_[A-Za-z0-9_-]{43}", secret)
    holder = owner_of_key(secret, records, clock)
    assert holder is not None
    assert holder.key.user_id == "usr_1"


def test_the_secret_of_a_key_is_not_stored(keys: Keys, records: MemoryRecords) -> None:
    record, secret = keys.create(label="laptop")
    kept = str([record, keys.list(), with_prefix(records, f"account:{ACCOUNT}", "")])
    assert secret not in kept
    assert secret.removeprefix("wh_") not in kept


def test_a_revoked_key_is_not_accepted(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    record, secret = keys.create()
    keys.revoke(record.id)
    assert owner_of_key(secret, records, clock) is None
    assert keys.list() == []
    with pytest.raises(NotFound):
        keys.revoke(record.id)


def test_a_rotated_key_has_a_new_secret_and_the_same_rights(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    tomorrow = stamp_of(clock.now() + timedelta(days=1))
    old, old_secret = keys.create(label="ci", user_id=UserId("usr_1"), expires_at=tomorrow)
    new, new_secret = keys.rotate(old.id)
    assert owner_of_key(old_secret, records, clock) is None
    holder = owner_of_key(new_secret, records, clock)
    assert holder is not None
    assert (new.label, new.user_id, new.expires_at) == ("ci", "usr_1", tomorrow)
    assert [key.id for key in keys.list()] == [new.id]


def test_a_key_is_not_accepted_from_its_expiry_on(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    _, secret = keys.create(expires_at="2026-01-01T00:01:00Z")
    clock.advance(59.9)
    assert owner_of_key(secret, records, clock) is not None
    clock.advance(0.1)
    assert owner_of_key(secret, records, clock) is None


@pytest.mark.parametrize(
    "bad",
    ["", "tomorrow", "2027-01-01", "2027-01-01T00:00:00", "2025-12-31T23:59:59Z", LATE, [], {}],
)
def test_a_key_expiry_without_a_zone_or_in_the_past_is_refused(keys: Keys, bad: object) -> None:
    with pytest.raises(Refused) as caught:
        keys.create(expires_at=bad)
    assert caught.value.field == "expiresAt"
    assert keys.list() == []


@pytest.mark.parametrize("bad", ["x" * 101, "two\nlines", 7, None])
def test_a_bad_key_label_is_refused(keys: Keys, bad: object) -> None:
    with pytest.raises(Refused) as caught:
        keys.create(label=bad)  # type: ignore[arg-type]
    assert caught.value.field == "label"


def test_the_last_use_of_a_key_is_recorded_at_most_once_a_minute(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    record, secret = keys.create()
    assert keys.get(record.id).last_used_at is None
    owner_of_key(secret, records, clock)
    first = keys.get(record.id).last_used_at
    assert first == stamp_of(clock.now())
    clock.advance(30)
    owner_of_key(secret, records, clock)
    assert keys.get(record.id).last_used_at == first
    clock.advance(31)
    owner_of_key(secret, records, clock)
    assert keys.get(record.id).last_used_at == stamp_of(clock.now())


def test_the_keys_of_another_account_are_not_found(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    record, secret = keys.create()
    other = Keys(AccountId("acct_2"), records, clock)
    assert other.list() == []
    for attempt in (other.get, other.revoke, other.rotate):
        with pytest.raises(NotFound):
            attempt(record.id)
    assert owner_of_key(secret, records, clock) is not None


def test_a_principal_that_may_not_change_keys_cannot_list_keys(
    keys: Keys, records: MemoryRecords, clock: ManualClock
) -> None:
    record, _ = keys.create()
    user = Keys(ACCOUNT, records, clock, may_change=False)
    for attempt in (
        user.list,
        user.create,
        lambda: user.get(record.id),
        lambda: user.revoke(record.id),
        lambda: user.rotate(record.id),
    ):
        with pytest.raises(Forbidden):
            attempt()
