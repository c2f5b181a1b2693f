"""A write over the API is pushed to S3 by a job on the machine that holds the change."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.bootstrap.services.history_jobs import FLUSH_WITHIN_S
from harness.jobs.job import ATTEMPTS_MAX, PAUSE_S_MAX
from harness.jobs.runner import AWAY_PAUSE_S, Drained
from harness.presentation.status import StatusRow, status
from tests.harness.homes import Open, opened, prefix
from workspaces.clock import ManualClock
from workspaces.revision import Author
from workspaces.sync.history_head import parse_head

__all__ = ["opened", "prefix"]

CALLER = Author("caller", "usr_2", "api")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def flushes(harness: Harness) -> list[str]:
    return [one.job.id for one in harness.jobs.list() if one.job.kind.startswith("flush:")]


def jobs_told(harness: Harness) -> tuple[StatusRow, ...]:
    return next(one.lines for one in status(harness) if one.name == "jobs")


def tip_there(harness: Harness) -> str | None:
    notes = harness.workspaces.get("notes")
    place = harness.house.place
    assert place is not None
    return parse_head(place.history(notes.namespace).read("head.json").data).tip


def test_an_api_write_is_pushed_to_s3_within_half_a_minute(
    opened: Open, clock: ManualClock
) -> None:
    harness = opened("a", clock=clock)
    harness.workspaces.sync("notes").run()
    harness.run_jobs()
    notes = harness.workspaces.get("notes")
    clock.advance(FLUSH_WITHIN_S)
    harness.run_jobs()
    before = clock.now()
    for number in range(3):
        notes.write("a.md", f"{number}\n", by=CALLER)
    (job,) = [one.job for one in harness.jobs.list() if one.job.kind.startswith("flush:")]
    assert (job.due - before).total_seconds() == FLUSH_WITHIN_S
    assert harness.run_jobs() == Drained(0, 0)
    assert tip_there(harness) != notes.history.tip()
    clock.advance(FLUSH_WITHIN_S)
    assert harness.run_jobs() == Drained(1, 0)
    assert tip_there(harness) == notes.history.tip()
    assert flushes(harness) == []


def test_a_flush_job_is_done_only_by_the_machine_that_holds_the_change(
    opened: Open, clock: ManualClock
) -> None:
    """Others on the same records have nothing to flush, and must not say that it is done."""
    a, b = opened("a", clock=clock), opened("b", clock=clock)
    a.workspaces.get("notes").write("a.md", "one\n", by=CALLER)
    assert flushes(a) == flushes(b) != []
    clock.advance(FLUSH_WITHIN_S)
    assert b.run_jobs().failed == 0
    assert flushes(a) != []
    assert a.run_jobs().failed == 0
    assert flushes(a) == []
    assert tip_there(b) == a.workspaces.get("notes").history.tip()


def test_a_write_after_a_completed_flush_schedules_another_flush(
    opened: Open, clock: ManualClock
) -> None:
    """What is written after that one is done wants another."""
    ours, theirs = opened("a", clock=clock), opened("a", clock=clock)
    notes = ours.workspaces.get("notes")
    ours.workspaces.sync("notes").run()
    clock.advance(FLUSH_WITHIN_S)
    ours.run_jobs()
    theirs.workspaces.get("notes").write("a.md", "one\n", by=CALLER)
    clock.advance(FLUSH_WITHIN_S - 1)
    notes.write("a.md", "two\n", by=CALLER)
    clock.advance(1)
    assert ours.run_jobs() == Drained(1, 0)
    notes.write("a.md", "three\n", by=CALLER)
    clock.advance(FLUSH_WITHIN_S)
    assert ours.run_jobs() == Drained(1, 0)
    assert tip_there(ours) == notes.history.tip()


def test_a_machine_offline_for_long_reports_the_failed_flush_and_flushes_when_s3_is_reachable(
    opened: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = opened("a", clock=clock)
    harness.workspaces.sync("notes").run()
    notes = harness.workspaces.get("notes")
    notes.write("a.md", "one\n", by=CALLER)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    away = opened("a", clock=clock)
    for _ in range(ATTEMPTS_MAX + 1):
        clock.advance(PAUSE_S_MAX)
        assert away.run_jobs() == Drained(0, 1)
    (line,) = jobs_told(away)
    assert (line.state, [line.subject]) == ("pending", flushes(away))
    assert "is unreachable" in line.told
    clock.advance(AWAY_PAUSE_S)
    (line,) = jobs_told(away)
    assert line.state == "due"
    assert "is unreachable" in line.told
    assert harness.run_jobs() == Drained(1, 0)
    assert tip_there(harness) == notes.history.tip()
    assert jobs_told(harness) == ()
