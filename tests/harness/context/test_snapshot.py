"""The snapshot of the prompt: when a session takes a new one and when a delta is enough."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from harness.context.delta import Delta
from harness.context.memory_parts import Memory, memory_parts
from harness.context.part import PromptPart
from harness.context.snapshot import (
    CACHE_LIFETIME,
    STEP_CHARACTERS_MIN,
    Leaving,
    Moment,
    ShownState,
    Snapshot,
    SnapshotKey,
    decide,
    snapshot_of,
    terms_of,
)
from harness.messages.model_request import ToolSpec
from harness.runtime.templates import render
from workspaces.revision import RevisionId
from workspaces.timestamp import stamp_of

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
READ = ToolSpec("read", "Reads a file.", {"type": "object"})
TERMS = SnapshotKey("ses_1", "1", "mounts", "", "head", "configuration")
TEA = "\n".join(f"- likes tea of kind {number}" for number in range(100)) + "."
"""A snapshot of it has a number of characters that four divides."""


def parts(text: str | None, **more: object) -> tuple[PromptPart, ...]:
    found = Memory("notes", text, RevisionId("a" * 40), **more)  # type: ignore[arg-type]
    return tuple(memory_parts([found], 40_000, render))


def moment(text: str | None = TEA, *, entry: int = 5, at: datetime = NOW, **more: object) -> Moment:
    unavailable = {"unavailable": more.pop("unavailable")} if "unavailable" in more else {}
    return Moment(at, entry, TERMS, parts(text, **unavailable), **more)  # type: ignore[arg-type]


def held(text: str | None = TEA, *deltas: Delta, at: datetime = NOW, **more: object) -> ShownState:
    taken = moment(text, entry=1, at=at, **more)
    snapshot = Snapshot(1, stamp_of(at), "first", TERMS, taken.parts, (READ,), at.date())
    return ShownState(snapshot, deltas, at)


def told(before: ShownState, now: Moment) -> ShownState:
    """After one request."""
    news = decide(before, now, render)
    if isinstance(news, Snapshot):
        return ShownState(news, (), now.at)
    deltas = (*before.deltas, news) if news else before.deltas
    return ShownState(before.snapshot, deltas, now.at)


def reason(before: ShownState | None, now: Moment) -> str:
    news = decide(before, now, render)
    assert isinstance(news, Snapshot)
    return news.reason


def test_the_first_request_takes_a_snapshot_and_an_unchanged_second_reuses_the_snapshot() -> None:
    assert reason(None, moment()) == "first"
    assert decide(held(), moment(), render) is None


@pytest.mark.parametrize("field", [field.name for field in fields(SnapshotKey)])
def test_a_changed_snapshot_key_takes_a_new_snapshot(field: str) -> None:
    now = replace(moment(), terms=replace(TERMS, **{field: "other"}))
    assert reason(held(), now) == field
    news = decide(held(), now, render)
    assert isinstance(news, Snapshot)
    assert news.number == 2
    assert decide(ShownState(news, (), NOW), now, render) is None


def test_a_reset_is_the_reason_given_before_all_other_changes() -> None:
    assert (
        reason(held(), replace(moment(), terms=SnapshotKey("2", "9", "", "", "x", "y"))) == "reset"
    )


def test_erased_memory_takes_a_new_snapshot() -> None:
    assert reason(held(), moment(is_erased=True)) == "erased"


def test_memory_that_is_available_again_takes_a_new_snapshot() -> None:
    missing = held(None, unavailable="EIO")
    assert decide(missing, moment(None, unavailable="EIO again"), render) is None
    assert reason(missing, moment()) == "available_again"
    failed = told(held(), moment(None, unavailable="EIO"))
    assert len(failed.deltas) == 1
    assert decide(failed, moment(None, unavailable="EIO again"), render) is None
    assert reason(failed, moment()) == "available_again"


def test_a_change_of_memory_is_a_delta_beside_the_newest_message() -> None:
    news = decide(held(), moment(TEA + "\n- and coffee", entry=7), render)
    assert isinstance(news, Delta)
    assert news.entry == 7
    assert "\n+ - and coffee\n" in news.text
    after = told(held(), moment(TEA + "\n- and coffee", entry=7))
    assert decide(after, moment(TEA + "\n- and coffee", entry=9), render) is None


def test_a_change_of_memory_that_is_reverted_is_a_second_delta() -> None:
    after = told(held(), moment(TEA + "\n- and coffee"))
    news = decide(after, moment(TEA), render)
    assert isinstance(news, Delta)
    assert "\n- - and coffee\n" in news.text


@pytest.mark.parametrize(("beyond", "is_delta"), [(-1, True), (0, True), (1, False)])
def test_deltas_over_a_quarter_of_the_snapshot_take_a_new_snapshot(
    beyond: int, is_delta: bool
) -> None:
    before = held()
    quarter = before.snapshot.characters // 4
    assert before.snapshot.characters % 4 == 0
    news = decide(before, moment(TEA + "\n- x"), render)
    assert isinstance(news, Delta)
    line = "- x" + "x" * (quarter - len(news.text) + beyond)
    after = decide(before, moment(TEA + "\n" + line), render)
    assert isinstance(after, Delta) == is_delta
    if not is_delta:
        assert reason(before, moment(TEA + "\n" + line)) == "deltas"


def test_many_small_deltas_are_counted_together() -> None:
    state, taken = held(), 0
    for number in range(100):
        text = TEA + "\n" + "\n".join(f"- new {n}" for n in range(number + 1))
        state = told(state, moment(text, entry=number))
        taken = max(taken, state.snapshot.number)
        assert sum(len(one.text) for one in state.deltas) <= state.snapshot.characters / 4
        assert "\n".join(part.text for part in state.parts) == parts(text)[0].text
    assert taken >= 2


@pytest.mark.parametrize(("beyond", "is_snapshot"), [(-1, False), (0, True), (1, True)])
def test_enough_leaving_tool_traffic_takes_a_new_snapshot(beyond: int, is_snapshot: bool) -> None:
    now = moment(leaving=Leaving(7, STEP_CHARACTERS_MIN + beyond))
    news = decide(held(), now, render)
    assert isinstance(news, Snapshot) == is_snapshot
    if is_snapshot:
        assert reason(held(), now) == "traffic"


def test_every_new_snapshot_drops_the_tool_traffic_that_may_leave() -> None:
    first = decide(None, moment(leaving=Leaving(7, 10)), render)
    assert isinstance(first, Snapshot)
    assert first.traffic_from == 7
    later = moment(at=NOW + 2 * CACHE_LIFETIME, leaving=Leaving(9, 10))
    expired = decide(ShownState(first, (), NOW), later, render)
    assert isinstance(expired, Snapshot)
    assert (expired.reason, expired.traffic_from) == ("expired", 9)


@pytest.mark.parametrize(("seconds", "is_expired"), [(-1, False), (0, False), (1, True)])
def test_a_snapshot_expires_with_the_lifetime_of_the_providers_cache(
    seconds: int, is_expired: bool
) -> None:
    later = NOW + CACHE_LIFETIME + timedelta(seconds=seconds)
    news = decide(held(), moment(at=later), render)
    assert isinstance(news, Snapshot) == is_expired
    if is_expired:
        assert reason(held(), moment(at=later)) == "expired"


def test_a_new_date_makes_one_delta() -> None:
    evening = datetime(2026, 11, 18, 23, 59, 59, tzinfo=UTC)
    before = held(at=evening)
    after = told(before, moment(at=evening + timedelta(seconds=1)))
    assert [one.text for one in after.deltas] == ["Today is Thursday, 2026-11-19 (UTC)."]
    assert decide(after, moment(at=evening + timedelta(seconds=2)), render) is None


def test_a_stored_snapshot_is_read_back_unchanged() -> None:
    taken = held(None, unavailable="EIO").snapshot
    assert snapshot_of(1, taken.as_json()) == taken
    later = replace(taken, traffic_from=12)
    assert snapshot_of(1, later.as_json()) == later
    assert terms_of({"reset": "ses_1"}) == SnapshotKey("ses_1", "", "", "", "", "")
