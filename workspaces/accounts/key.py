"""API keys: secrets that authenticate a program as an account or as one of its users.

A key is shown once, when it is created. Only its SHA-256 is stored, and the record is looked up under that
hash. So no stored secret is ever compared with a presented one. A key has 258 random bits. It cannot be
guessed, and a plain hash is as good as a slow one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from workspaces import invisible_characters
from workspaces.accounts.stored_items import partition_of
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, Forbidden, NotFound, Refused, Unavailable
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
"""Random bytes of a secret: 43 url-safe characters."""

LABEL_CHARACTERS_MAX = 100

SEEN_EVERY = timedelta(minutes=1)
"""Precision of a key's last use: at most one write a minute, not one a request."""


class KeyRecord(StrictModel):
    id: KeyId
    label: Annotated[
        str, Field(max_length=LABEL_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")
    ] = ""
    user_id: UserId | None = None
    """The user as which the key acts; absent for a key of the account."""
    created_at: Stamp
    last_used_at: Stamp | None = None
    expires_at: Stamp | None = None


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """The account of a key, and the key's record."""

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
        """Create a key. Return it with its secret, which cannot be shown again."""
        self._check_right("make keys")
        fields: dict[str, Any] = {"label": label}
        if user_id is not None:
            fields["userId"] = user_id
        if expires_at is not None:
            fields["expiresAt"] = self._future_stamp(expires_at)
        record, secret, changes = self._new_key(fields)
        rule = invisible_characters.broken_rule(record.label)
        if rule is not None:
            raise Refused("label", label, rule)
        self._records.write(*changes)
        return record, secret

    def list(self) -> list[KeyRecord]:
        """Return the keys of the account, oldest first."""
        self._check_right("see keys")
        index = with_prefix(self._records, partition_of(self._account_id), "key:")
        items = (self._records.get(Key(_key_partition(entry), "key")) for entry in index)
        records = [_record(item) for item in items if item is not None]
        return sorted(records, key=lambda record: (record.created_at, record.id))

    def get(self, key_id: str) -> KeyRecord:
        self._check_right("see keys")
        return _record(self._item(key_id))

    def revoke(self, key_id: str) -> KeyRecord:
        """Revoke a key. It stops working immediately."""
        self._check_right("revoke keys")
        item = self._item(key_id)
        self._records.write(*self._deletion(item))
        return _record(item)

    def rotate(self, key_id: str) -> tuple[KeyRecord, str]:
        """Replace a key by a new one in one batch. The new key has its label, its user and its expiry.

        Return the new key and its secret.
        """
        self._check_right("rotate keys")
        item = self._item(key_id)
        values = {name: item.value.get(name) for name in ("label", "userId", "expiresAt")}
        fields = {name: value for name, value in values.items() if value}
        record, secret, changes = self._new_key(fields)
        self._records.write(*changes, *self._deletion(item))
        return record, secret

    def _new_key(self, fields: dict[str, Any]) -> tuple[KeyRecord, str, tuple[RecordChange, ...]]:
        prefix = USER_PREFIX if fields.get("userId") else ACCOUNT_PREFIX
        secret = prefix + secrets.token_urlsafe(SECRET_BYTES)
        system_fields = {"id": new_id("key"), "createdAt": stamp_of(self._clock.now())}
        record = parse(KeyRecord, {**fields, **system_fields})
        key = _record_key(secret)
        value = {**record.as_json(), "accountId": self._account_id}
        return (
            record,
            secret,
            (
                Put(key, value, expect=ABSENT),
                Put(self._index(record.id), {"at": key.partition}, expect=ABSENT),
            ),
        )

    def _deletion(self, item: Item) -> tuple[RecordChange, ...]:
        return Delete(item.key), Delete(self._index(item.value["id"]))

    def _item(self, key_id: str) -> Item:
        index = self._records.get(self._index(key_id)) if 0 < len(key_id) < 100 else None
        item = self._records.get(Key(_key_partition(index), "key")) if index else None
        if item is None:
            raise NotFound("key", key_id)
        return item

    def _index(self, key_id: str) -> Key:
        return Key(partition_of(self._account_id), f"key:{key_id}")

    def _future_stamp(self, value: object) -> Stamp:
        stamp = _stamp(value)
        if stamp <= stamp_of(self._clock.now()):
            raise Refused("expiresAt", value, "is in the past")
        return stamp

    def _check_right(self, deed: str) -> None:
        if not self._may_change:
            raise Forbidden(deed)


def owner_of_key(secret: str, records: RecordStore, clock: Clock) -> KeyOwner | None:
    """Return the owner of this key. None if it is no key, was revoked, or has expired."""
    if not secret.startswith((ACCOUNT_PREFIX, USER_PREFIX)):
        return None
    return owner_of_key_hash(key_hash(secret), records, clock)


def owner_of_key_hash(digest: str, records: RecordStore, clock: Clock) -> KeyOwner | None:
    """Return the owner of the key with this hash. None if there is none, or it has expired."""
    item = records.get(_hashed_key(digest))
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
    except (Conflict, Unavailable):
        return  # another request noted it, the key was revoked, or the disk is full: reading goes on


def _record(item: Item) -> KeyRecord:
    return parse(KeyRecord, {name: v for name, v in item.value.items() if name != "accountId"})


def key_hash(secret: str) -> str:
    return sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _record_key(secret: str) -> Key:
    return _hashed_key(key_hash(secret))


def _hashed_key(digest: str) -> Key:
    """Return the record's key. It contains only the hash, so a reader of the store learns no API key."""
    return Key(f"key:{digest}", "key")


def _key_partition(index: Item) -> str:
    return index.value["at"]


def _stamp(value: object) -> Stamp:
    try:
        return stamp_of(TypeAdapter(AwareDatetime).validate_python(value))
    except (ValidationError, OverflowError) as error:  # OverflowError: end of 9999 in another zone
        rule = "must be a date and time with its zone, such as 2027-01-31T12:00:00Z"
        raise Refused("expiresAt", value, rule) from error
