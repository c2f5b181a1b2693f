"""Webhooks: addresses of an account's owner that are told what happens in the account.

A webhook has a secret of its own, which signs every delivery. It is shown once, when the webhook is created.
It must be stored, because a signature cannot be made from a hash.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from workspaces.accounts.stored_items import partition_of
from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import Forbidden, NotFound, OverLimit, Refused
from workspaces.ids import AccountId, new_id
from workspaces.storage.contention import until_written
from workspaces.storage.records import Delete, Item, Key, Put, RecordStore, with_prefix
from workspaces.timestamp import Stamp, stamp_of
from workspaces.validation import StrictModel, parse

NoticeKind = Literal["turn.finished", "approval.waiting", "memory.changed", "conflict.found"]

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix by which people recognise such a secret
SECRET_BYTES = 32

WEBHOOKS_MAX = 10
"""The most webhooks of an account. The end of a turn enqueues a delivery for each in its one batch."""

URL_CHARACTERS_MAX = 2_000

KEPT_S = 5.0
"""Seconds for which a process keeps what it has read. Every turn and every revision asks, and nearly always
there is none. So a webhook that another process made is told of what happens five seconds later or after."""


class NewWebhook(StrictModel):
    """The fields with which a webhook is created."""

    url: Annotated[str, Field(max_length=URL_CHARACTERS_MAX)]
    """An address that begins with https:// or http://."""
    events: Annotated[tuple[NoticeKind, ...], Field(min_length=1, strict=False)]
    """The kinds of notices that are sent to it."""


class WebhookRecord(NewWebhook):
    """A webhook as people see it, without its secret."""

    id: str
    created_at: Stamp


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook with its secret."""

    record: WebhookRecord
    secret: str


class Webhooks:
    """The webhooks of one account."""

    def __init__(
        self, account_id: AccountId, records: RecordStore, clock: Clock, *, may_change: bool = True
    ) -> None:
        self._account_id = account_id
        self._records = records
        self._clock = clock
        self._may_change = may_change
        self._kept: list[Item] = []
        self._read_at = -math.inf

    def create(self, fields: object) -> Webhook:
        """Create a webhook. Its secret cannot be shown again.

        Raises: Refused for an invalid address or kind; OverLimit when the account has too many.
        """
        self._check_right("make webhooks")
        new = parse(NewWebhook, fields)
        _check_url(new.url)
        secret = SECRET_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        value = {
            "url": new.url,
            "events": sorted(set(new.events)),
            "id": new_id("hook"),
            "createdAt": stamp_of(self._clock.now()),
        }
        self._put(value, secret)
        return Webhook(parse(WebhookRecord, value), secret)

    @until_written("webhooks")
    def _put(self, value: dict[str, Any], secret: str) -> None:
        """Write a new webhook."""
        count = self._records.get(self._count)
        found = len(self._items())
        if found >= WEBHOOKS_MAX:
            raise OverLimit("webhooks", maximum=WEBHOOKS_MAX, actual=found + 1, unit="webhooks")
        put = Put(self._key(value["id"]), {**value, "secret": secret}, expect=ABSENT)
        expect = ABSENT if count is None else count.counter
        self._records.write(put, Put(self._count, {}, expect=expect))
        self._read_at = -math.inf

    def list(self) -> list[WebhookRecord]:
        """Return the webhooks without their secrets, oldest first."""
        self._check_right("see webhooks")
        records = [_webhook(item).record for item in self._items()]
        return sorted(records, key=lambda record: (record.created_at, record.id))

    def delete(self, webhook_id: str) -> WebhookRecord:
        """Delete a webhook. What waits to be delivered to it is dropped.

        Raises: NotFound.
        """
        self._check_right("delete webhooks")
        webhook = self.find(webhook_id)
        if webhook is None:
            raise NotFound("webhook", webhook_id, remedy="list the webhooks to see their ids")
        self._records.write(Delete(self._key(webhook_id)))
        self._read_at = -math.inf
        return webhook.record

    def find(self, webhook_id: str) -> Webhook | None:
        if not 0 < len(webhook_id) < 100:
            return None
        item = self._records.get(self._key(webhook_id))
        return None if item is None else _webhook(item)

    def forget(self) -> None:
        """Delete all webhooks of an account that is being deleted."""
        for item in self._items():
            self._records.write(Delete(item.key))
        self._records.write(Delete(self._count))

    def wanting(self, kind: NoticeKind) -> list[str]:
        """Return the ids of the webhooks that want notices of a kind, as they were `KEPT_S` ago or later."""
        now = self._clock.monotonic()
        if now - self._read_at >= KEPT_S:
            self._kept, self._read_at = self._items(), now
        return [item.value["id"] for item in self._kept if kind in item.value["events"]]

    def _items(self) -> list[Item]:
        return list(with_prefix(self._records, partition_of(self._account_id), "webhook:"))

    def _key(self, webhook_id: str) -> Key:
        return Key(partition_of(self._account_id), f"webhook:{webhook_id}")

    @property
    def _count(self) -> Key:
        """Return the key of the item that every creation changes, so that two cannot pass the limit."""
        return Key(partition_of(self._account_id), "webhooks")

    def _check_right(self, deed: str) -> None:
        if not self._may_change:
            raise Forbidden(deed)


def _webhook(item: Item) -> Webhook:
    fields = {name: value for name, value in item.value.items() if name != "secret"}
    return Webhook(parse(WebhookRecord, fields), item.value["secret"])


def _check_url(url: str) -> None:
    """Check an address as far as its text shows. Where it leads is checked at each delivery."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("url", url, "is not an address") from error
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise Refused("url", url, "must begin with https:// or http:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise Refused("url", url, "must not hold a name or password", remedy="use the signature")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise Refused("url", url, "must be printable ASCII without spaces")
    if port == 0:
        raise Refused("url", url, "must not name port 0")
