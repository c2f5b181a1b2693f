from __future__ import annotations

import pytest

from workspaces.claim import CLAIM_S, Claims
from workspaces.clock import ManualClock
from workspaces.errors import Busy, Conflict
from workspaces.ids import AccountId
from workspaces.stores.memory import MemoryRecords

ACCOUNT = AccountId("acct_1")


@pytest.fixture
def claims(clock: ManualClock) -> Claims:
    return Claims(MemoryRecords(clock), clock)


def test_an_event_is_claimed_once(claims: Claims) -> None:
    claims.claim(ACCOUNT, "e1", "body")
    with pytest.raises(Busy):
        claims.claim(ACCOUNT, "e1", "body")
    assert claims.claim(ACCOUNT, "e2", "body").outcome is None
    assert claims.claim(AccountId("acct_2"), "e1", "body").outcome is None


def test_a_finished_event_is_answered_with_its_outcome(claims: Claims) -> None:
    claim = claims.claim(ACCOUNT, "e1", "body")
    claims.finish(claim, {"reply": "hello"})
    assert claims.claim(ACCOUNT, "e1", "body").outcome == {"reply": "hello"}


def test_the_same_id_with_another_body_is_a_conflict(claims: Claims) -> None:
    claims.finish(claims.claim(ACCOUNT, "e1", "body"), {})
    with pytest.raises(Conflict):
        claims.claim(ACCOUNT, "e1", "another body")


def test_a_released_claim_may_be_made_again(claims: Claims) -> None:
    claims.release(claims.claim(ACCOUNT, "e1", "body"))
    assert claims.claim(ACCOUNT, "e1", "body").outcome is None


def test_a_claim_is_forgotten_a_day_after_it_was_made(claims: Claims, clock: ManualClock) -> None:
    claim = claims.claim(ACCOUNT, "e1", "body")
    clock.advance(3600)
    claims.finish(claim, {"reply": "hello"})
    clock.advance(CLAIM_S - 3601)
    assert claims.claim(ACCOUNT, "e1", "body").outcome is not None
    clock.advance(1)
    assert claims.claim(ACCOUNT, "e1", "body").outcome is None
