"""The webhooks of an account: creation, limits, and what they may not be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.webhooks.webhook import SECRET_PREFIX, WEBHOOKS_MAX, Webhooks
from workspaces.clock import ManualClock
from workspaces.errors import Forbidden, NotFound, OverLimit, Refused
from workspaces.ids import AccountId
from workspaces.storage.in_memory import MemoryRecords

NEW: dict[str, Any] = {"url": "https://example.com/hook", "events": ["turn.finished"]}


@pytest.fixture
def webhooks() -> Webhooks:
    return Webhooks(AccountId("acct_1"), MemoryRecords(), ManualClock())


def test_the_secret_of_a_webhook_is_in_no_list(webhooks: Webhooks) -> None:
    made = webhooks.create(NEW)
    assert made.secret.startswith(SECRET_PREFIX)
    assert len(made.secret) > 40
    (listed,) = webhooks.list()
    assert listed == made.record
    assert made.secret not in str(listed.as_json())
    found = webhooks.find(made.record.id)
    assert found == made


@pytest.mark.parametrize(
    "fields",
    [
        {**NEW, "url": "ftp://example.com"},
        {**NEW, "url": "https://"},
        {**NEW, "url": "https://u:p@example.com/"},
        {**NEW, "url": "https://example.com/\r\nX: y"},
        {**NEW, "url": "https://exämple.com/"},
        {**NEW, "url": "https://example.com:99999/"},
        {**NEW, "url": "https://example.com:0/"},
        {**NEW, "url": "https://[::1"},
        {**NEW, "url": "https://e.com/" + "x" * 2_000},
        {**NEW, "url": 7},
        {**NEW, "events": []},
        {**NEW, "events": ["turn.started"]},
        {**NEW, "events": "turn.finished"},
        {**NEW, "secret": "mine"},
        {"url": "https://example.com"},
        [],
    ],
)
def test_a_webhook_that_breaks_a_rule_is_refused(webhooks: Webhooks, fields: object) -> None:
    with pytest.raises(Refused):
        webhooks.create(fields)
    assert webhooks.list() == []


def test_concurrent_creations_do_not_pass_the_limit(webhooks: Webhooks) -> None:
    def create(_: int) -> bool:
        try:
            webhooks.create(NEW)
        except OverLimit:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(create, range(WEBHOOKS_MAX + 4)))
    assert made.count(True) == len(webhooks.list()) == WEBHOOKS_MAX


def test_a_deleted_webhook_wants_nothing(webhooks: Webhooks) -> None:
    made = webhooks.create({**NEW, "events": ["memory.changed", "memory.changed"]})
    assert made.record.events == ("memory.changed",)
    assert webhooks.wanting("memory.changed") == [made.record.id]
    assert webhooks.wanting("turn.finished") == []
    webhooks.delete(made.record.id)
    assert webhooks.wanting("memory.changed") == []
    for unknown in (made.record.id, "", "x" * 500, "hook_\0"):
        with pytest.raises(NotFound):
            webhooks.delete(unknown)


def test_a_user_of_the_account_may_not_touch_webhooks() -> None:
    mere = Webhooks(AccountId("acct_1"), MemoryRecords(), ManualClock(), may_change=False)
    for deed in (lambda: mere.create(NEW), mere.list, lambda: mere.delete("hook_1")):
        with pytest.raises(Forbidden):
            deed()
