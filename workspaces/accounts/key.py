"""Keys: secrets by which a program is known as an account or as one of its users.

A key is shown once, when it is made; what is kept is its SHA-256, and that is also where its record is
looked up, so no stored secret is ever compared with a presented one. (A key has 258 random bits: there
is nothing to guess, and a plain hash is as good as a slow one.)
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from workspaces import invisible_characters
from workspaces.accounts.record_catalog import partition_of
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Forbidden, NotFound, Refused
from workspaces.ids import AccountId, KeyId, UserId, new_id
from workspaces.storage.records import (
    Delete,
    Item,
    Key,
    Put,
    RecordChange,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp, stamp_of
from workspaces.validation import StrictModel, parse

ACCOUNT_PREFIX = "wh_"
USER_PREFIX = "whu_"

SECRET_BYTES = 32
"""Of randomness: 43 url-safe characters."""

LABEL_CHARACTERS_MAX = 100

SEEN_EVERY = timedelta(minutes=1)
"""How exactly it is noted when a key was last used: a write a minute, not one a request."""


class KeyRecord(StrictModel):
    id: KeyId
    label: Annotated[
        str, Field(max_length=LABEL_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    user_id: UserId | None = None
    """Whom it acts as; absent for a key of the account."""
    created_at: Stamp
    last_used_at: Stamp | None = None
    expires_at: Stamp | None = None


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """Whom a key belongs to."""

    account_id: AccountId
    key: KeyRecord


class Keys:
    """The keys of one account."""

    def __init__(
        self, account_id: AccountId, records: RecordStore, clock: Clock, *, may_change: bool = True
    ) -> None:
        self._account_id = account_id
        self._records = records
        self._clock = clock
        self._may_change = may_change

    def create(
        self, *, label: str = "", user_id: UserId | None = None, expires_at: object = None
    ) -> tuple[KeyRecord, str]:
        """A new key and its secret, which cannot be shown again."""
        self._check_right("make keys")
        fields: dict[str, Any] = {"label": label}
        if user_id is not None:
            fields["userId"] = user_id
        if expires_at is not None:
            fields["expiresAt"] = self._in_the_future(expires_at)
        record, secret, changes = self._made(fields)
        rule = invisible_characters.broken_rule(record.label)
        if rule is not None:
            raise Refused("label", label, rule)
        self._records.write(*changes)
        return record, secret

    def list(self) -> list[KeyRecord]:
        """Oldest first."""
        self._check_right("see keys")
        items = with_prefix(self._records, partition_of(self._account_id), "key:")
        found = (self._records.get(Key(_hashed(item), "key")) for item in items)
        records = [_record(item) for item in found if item is not None]
        return sorted(records, key=lambda record: (record.created_at, record.id))

    def get(self, key_id: str) -> KeyRecord:
        self._check_right("see keys")
        return _record(self._item(key_id))

    def revoke(self, key_id: str) -> KeyRecord:
        """From now on nobody is known by it."""
        self._check_right("revoke keys")
        item = self._item(key_id)
        self._records.write(*self._gone(item))
        return _record(item)

    def rotate(self, key_id: str) -> tuple[KeyRecord, str]:
        """Another key in its place, in one instant: with its label, its user and its expiry."""
        self._check_right("rotate keys")
        item = self._item(key_id)
        kept = {name: item.value.get(name) for name in ("label", "userId", "expiresAt")}
        record, secret, changes = self._made({name: kept[name] for name in kept if kept[name]})
        self._records.write(*changes, *self._gone(item))
        return record, secret

    def _made(self, fields: dict[str, Any]) -> tuple[KeyRecord, str, tuple[RecordChange, ...]]:
        prefix = USER_PREFIX if fields.get("userId") else ACCOUNT_PREFIX
        secret = prefix + secrets.token_urlsafe(SECRET_BYTES)
        stated = {"id": new_id("key"), "createdAt": stamp_of(self._clock.now())}
        record = parse(KeyRecord, {**fields, **stated})
        place = _place(secret)
        value = {**record.as_json(), "accountId": self._account_id}
        return (
            record,
            secret,
            (
                Put(place, value, expect=ABSENT),
                Put(self._index(record.id), {"at": place.partition}, expect=ABSENT),
            ),
        )

    def _gone(self, item: Item) -> tuple[RecordChange, ...]:
        return Delete(item.key), Delete(self._index(item.value["id"]))

    def _item(self, key_id: str) -> Item:
        index = self._records.get(self._index(key_id)) if 0 < len(key_id) < 100 else None
        item = self._records.get(Key(_hashed(index), "key")) if index else None
        if item is None:
            raise NotFound("key", key_id)
        return item

    def _index(self, key_id: str) -> Key:
        return Key(partition_of(self._account_id), f"key:{key_id}")

    def _in_the_future(self, stated: object) -> Stamp:
        stamp = _stamp(stated)
        if stamp <= stamp_of(self._clock.now()):
            raise Refused("expiresAt", stated, "has passed")
        return stamp

    def _check_right(self, deed: str) -> None:
        if not self._may_change:
            raise Forbidden(deed)


def owner_of_key(secret: str, records: RecordStore, clock: Clock) -> KeyOwner | None:
    """Whom this key belongs to; None when it is no key, was revoked, or has expired."""
    if not secret.startswith((ACCOUNT_PREFIX, USER_PREFIX)):
        return None
    item = records.get(_place(secret))
    if item is None:
        return None
    record = _record(item)
    if record.expires_at is not None and record.expires_at <= stamp_of(clock.now()):
        return None
    _note_use(item, record, records, clock)
    return KeyOwner(AccountId(item.value["accountId"]), record)


def _note_use(item: Item, record: KeyRecord, records: RecordStore, clock: Clock) -> None:
    now = clock.now()
    if record.last_used_at is not None and record.last_used_at > stamp_of(now - SEEN_EVERY):
        return
    try:
        value = {**item.value, "lastUsedAt": stamp_of(now)}
        records.write(Put(item.key, value, expect=item.counter))
    except Conflict:
        return  # another request noted it, or the key was revoked in this instant


def _record(item: Item) -> KeyRecord:
    return parse(KeyRecord, {name: v for name, v in item.value.items() if name != "accountId"})


def _place(secret: str) -> Key:
    """By the hash alone: whoever reads the store learns no key."""
    return Key(f"key:{sha256(secret.encode(errors='surrogateescape')).hexdigest()}", "key")


def _hashed(index: Item) -> str:
    return index.value["at"]


def _stamp(stated: object) -> Stamp:
    try:
        return stamp_of(TypeAdapter(AwareDatetime).validate_python(stated))
    except (ValidationError, OverflowError) as error:  # the second: the end of year 9999, elsewhere
        rule = "must be a date and time with its zone, such as 2027-01-31T12:00:00Z"
        raise Refused("expiresAt", stated, rule) from error
