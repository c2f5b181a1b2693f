"""Claims: an event is claimed once, its outcome stored once, and both expire."""

from __future__ import annotations

import pytest

from workspaces.clock import ManualClock
from workspaces.conditions import ABSENT
from workspaces.coordination.claim import CLAIM_S, OUTCOME_S, Claim, ClaimedBody, Claims
from workspaces.errors import Conflict
from workspaces.storage.in_memory import MemoryRecords
from workspaces.storage.records import Key

KEY = Key("claims:acct_1:usr_1", "agent_1:e1")
ABOUT = {"number": 1}


@pytest.fixture
def records(clock: ManualClock) -> MemoryRecords:
    return MemoryRecords(clock)


@pytest.fixture
def claims(records: MemoryRecords, clock: ManualClock) -> Claims:
    return Claims(records, clock)


def claimed(records: MemoryRecords, claims: Claims, body: str = "body") -> Claim:
    """As everyone makes one: looked for, then written under the condition that was found."""
    expect = claims.look(KEY, ClaimedBody(body).__eq__)
    assert not isinstance(expect, Claim)
    records.write(claims.made(KEY, ClaimedBody(body), ABOUT, expect))
    return standing(claims)


def standing(claims: Claims) -> Claim:
    found = claims.find(KEY)
    assert found is not None
    return found


def test_an_event_is_claimed_once(records: MemoryRecords, claims: Claims) -> None:
    claimed(records, claims)
    with pytest.raises(Conflict):
        records.write(claims.made(KEY, ClaimedBody("body"), ABOUT, ABSENT))
    found = claims.look(KEY, ClaimedBody("body").__eq__)
    assert isinstance(found, Claim)
    assert (found.about, found.outcome, found.refusal) == (ABOUT, None, None)


def test_an_event_id_with_another_body_is_a_conflict(
    records: MemoryRecords, claims: Claims
) -> None:
    claim = claimed(records, claims)
    with pytest.raises(Conflict):
        claims.look(KEY, ClaimedBody("another body").__eq__)
    records.write(claims.finished(claim, {"reply": "hello"}))
    with pytest.raises(Conflict):
        claims.look(KEY, ClaimedBody("another body").__eq__)


def test_a_claim_of_a_finished_event_carries_its_outcome(
    records: MemoryRecords, claims: Claims
) -> None:
    records.write(claims.finished(claimed(records, claims), {"reply": "hello"}))
    found = claims.look(KEY, ClaimedBody("body").__eq__)
    assert isinstance(found, Claim)
    assert found.outcome == {"reply": "hello"}


def test_a_released_claim_names_its_refusal_and_can_be_made_again(
    records: MemoryRecords, claims: Claims
) -> None:
    records.write(claims.released(claimed(records, claims), {"code": "not_found"}))
    assert standing(claims).refusal == {"code": "not_found"}
    assert claimed(records, claims, "another body").refusal is None


def test_the_outcome_of_a_claim_is_written_once(records: MemoryRecords, claims: Claims) -> None:
    claim = claimed(records, claims)
    records.write(claims.finished(claim, {"reply": "hello"}))
    with pytest.raises(Conflict):
        records.write(claims.finished(claim, {"reply": "hello again"}))


def test_a_claim_expires_a_day_after_its_creation(
    records: MemoryRecords, claims: Claims, clock: ManualClock
) -> None:
    claim = claimed(records, claims)
    clock.advance(3600)
    records.write(claims.finished(claim, {}))
    clock.advance(CLAIM_S - 3601)
    assert claims.find(KEY) is not None
    clock.advance(1)
    assert claims.find(KEY) is None


def test_an_unfinished_event_keeps_its_claim_and_a_late_outcome_can_be_read(
    records: MemoryRecords, claims: Claims, clock: ManualClock
) -> None:
    claim = claimed(records, claims)
    clock.advance(2 * CLAIM_S)
    assert isinstance(claims.look(KEY, ClaimedBody("body").__eq__), Claim)
    records.write(claims.finished(claim, {}))
    clock.advance(OUTCOME_S - 1)
    assert claims.find(KEY) is not None
    clock.advance(1)
    assert claims.find(KEY) is None


def test_a_claim_resumed_after_days_lives_as_long_as_the_event_that_resumed_the_turn(
    records: MemoryRecords, claims: Claims, clock: ManualClock
) -> None:
    records.write(claims.resting(claimed(records, claims), {"status": "waiting"}))
    clock.advance(3 * CLAIM_S)
    records.write(claims.resumed(standing(claims)))
    records.write(claims.finished(standing(claims), {"status": "done"}))
    clock.advance(CLAIM_S - 1)
    assert standing(claims).outcome == {"status": "done"}
    clock.advance(1)
    assert claims.find(KEY) is None
