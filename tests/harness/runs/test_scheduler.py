"""Schedules: each tick is fired once, missed ones collapse, and what stands in the way is recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.bootstrap.join import join
from harness.models.scripted import ScriptedModel
from harness.runs.run import Run
from harness.sandboxes.none import NoSandbox
from tests.harness.laptops import Laptop
from tests.servers import BUCKET, S3Server
from tests.workspaces.replicas import MemoryPrefix
from workspaces.clock import ManualClock
from workspaces.errors import Refused
from workspaces.ids import new_id
from workspaces.storage.faulty import FaultyBlobs, StoreFault

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Yes:
    """Says yes to everything, and counts how often."""

    name = "yes"

    def __init__(self) -> None:
        self._inner = ScriptedModel()
        self.asked = 0

    async def reply(self, request: Any, **how: Any) -> Any:
        self.asked += 1
        self._inner.script("yes")
        return await self._inner.reply(request, **how)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def model() -> Yes:
    return Yes()


@pytest.fixture
def harness(home: Path, model: Yes, clock: ManualClock) -> Iterator[Harness]:
    with Harness.open(home, model=model, clock=clock, sandbox=NoSandbox("not here")) as opened:
        yield opened


def scheduled(harness: Harness, cron: str = "0 8 * * *", zone: str = "UTC") -> None:
    schedule = {"cron": cron, "timezone": zone}
    config = {"defaultPrompt": "the usual", "schedule": schedule}
    harness.agents.patch("assistant", {"config": config})


def until(harness: Harness, clock: ManualClock, moment: datetime) -> None:
    """Let the time pass, and do what is due then."""
    clock.advance((moment - clock.now()).total_seconds())
    harness.run_jobs()


def runs(harness: Harness) -> list[Run]:
    """Oldest first."""
    return [view.run for view in reversed(harness.runs.list("assistant"))]


def test_an_agent_runs_at_each_tick_with_its_default_prompt(
    harness: Harness, clock: ManualClock
) -> None:
    scheduled(harness, zone="Europe/Vienna")
    until(harness, clock, datetime(2026, 6, 2, 5, 59, tzinfo=UTC))
    assert runs(harness) == []
    until(harness, clock, datetime(2026, 6, 2, 6, tzinfo=UTC))
    until(harness, clock, datetime(2026, 6, 3, 6, 0, 1, tzinfo=UTC))
    first, second = runs(harness)
    assert (first.source, first.status, first.prompt) == ("schedule", "succeeded", "the usual")
    assert second.created_at.startswith("2026-06-03T06:00:01")


def test_missed_ticks_collapse_into_one(harness: Harness, clock: ManualClock, model: Yes) -> None:
    scheduled(harness, "*/10 * * * *")
    until(harness, clock, NOON + timedelta(days=3, minutes=5))
    assert (len(runs(harness)), model.asked) == (1, 1)
    until(harness, clock, NOON + timedelta(days=3, minutes=10))
    assert model.asked == 2


def test_a_tick_while_a_run_is_active_is_recorded_as_skipped(
    harness: Harness, clock: ManualClock, model: Yes
) -> None:
    scheduled(harness)
    clock.advance(timedelta(days=1).total_seconds())
    active = harness.runs.start("assistant", "by hand")
    harness.rooms.scheduler.fire(active.agent_id, NOON)
    (tick,) = (run for run in runs(harness) if run.source == "schedule")
    assert (tick.status, tick.source) == ("skipped", "schedule")
    assert tick.error is not None and tick.error.code == "agent_running"
    harness.finish_run(active.id)
    harness.rooms.scheduler.fire(active.agent_id, NOON)  # the tick stays skipped
    assert sorted(run.status for run in runs(harness)) == ["skipped", "succeeded"]
    assert model.asked == 1


def test_a_clock_that_goes_back_fires_no_tick_again(
    harness: Harness, clock: ManualClock, model: Yes
) -> None:
    scheduled(harness, "0 * * * *")
    until(harness, clock, NOON + timedelta(hours=1))
    clock.jump(-1800)
    harness.rooms.scheduler.correct()
    until(harness, clock, NOON + timedelta(hours=1, minutes=1))
    assert model.asked == 1
    until(harness, clock, NOON + timedelta(hours=2))
    assert model.asked == 2


def test_a_clock_that_was_far_ahead_does_not_stop_the_schedule(
    harness: Harness, clock: ManualClock, model: Yes
) -> None:
    scheduled(harness, "0 * * * *")
    clock.jump(10 * 365 * 86_400)
    harness.run_jobs()
    clock.jump(-10 * 365 * 86_400)
    until(harness, clock, NOON + timedelta(hours=1))
    assert model.asked == 1  # the one of the far future
    harness.rooms.scheduler.correct()
    until(harness, clock, NOON + timedelta(hours=2))
    assert model.asked == 2


def test_a_tick_from_before_the_schedule_was_set_is_not_fired(
    harness: Harness, clock: ManualClock, model: Yes
) -> None:
    scheduled(harness)
    harness.jobs.retry(f"schedule:{harness.agents.get('assistant').id}")
    harness.run_jobs()
    assert model.asked == 0
    until(harness, clock, NOON + timedelta(hours=20))
    assert model.asked == 1


def test_another_schedule_counts_from_then_on_and_none_ends_it(
    harness: Harness, clock: ManualClock, model: Yes
) -> None:
    scheduled(harness)
    scheduled(harness, "30 13 * * *")
    until(harness, clock, NOON + timedelta(hours=2))
    assert model.asked == 1
    harness.agents.patch("assistant", {"config": {"schedule": None}})
    until(harness, clock, NOON + timedelta(days=7))
    assert (model.asked, harness.jobs.list()) == (1, [])


def test_a_schedule_needs_a_prompt_and_keeps_it(harness: Harness) -> None:
    with pytest.raises(Refused, match="default prompt"):
        harness.agents.patch("assistant", {"config": {"schedule": {"cron": "0 8 * * *"}}})
    scheduled(harness)
    with pytest.raises(Refused, match="default prompt"):
        harness.agents.patch("assistant", {"config": {"defaultPrompt": None}})
    for wrong in ({"cron": "0 0 8 * * *"}, {"timezone": "Nowhere"}, {"every": "day"}):
        with pytest.raises(Refused, match=r"config\.schedule"):
            harness.agents.patch("assistant", {"config": {"schedule": wrong}})


def test_deleting_an_agent_ends_its_schedule(harness: Harness, clock: ManualClock) -> None:
    config = {"defaultPrompt": "x", "schedule": {"cron": "* * * * *"}}
    harness.agents.add({"name": "helper", "config": config})
    harness.deletion.agent("helper")
    assert harness.jobs.list() == []
    until(harness, clock, NOON + timedelta(hours=1))


def test_a_scheduled_run_continues_the_shared_session_when_active_memory_is_on(
    harness: Harness, clock: ManualClock
) -> None:
    scheduled(harness, "0 * * * *")
    harness.runs.set_memory("assistant", is_enabled=True)
    harness.run("good morning", is_shared=True)
    until(harness, clock, NOON + timedelta(hours=1))
    until(harness, clock, NOON + timedelta(hours=2))
    first, second = runs(harness)
    assert first.session_before is not None
    assert first.session_after == second.session_before


# machines that share a bucket, and not their records


@pytest.fixture
def laptops(tmp_path: Path, clock: ManualClock) -> tuple[Laptop, Laptop]:
    """Two machines of one account with records of their own, and an agent that runs every hour."""
    prefix = MemoryPrefix()
    one = Laptop(tmp_path / "one", prefix, clock, joins=False)
    one.sync()
    two = Laptop(tmp_path / "two", prefix, clock)
    two.attach("notes")
    scheduled(one.harness, "0 * * * *")
    one.sync()
    two.sync()
    return one, two


def test_a_tick_is_fired_by_one_of_the_machines_that_share_a_bucket_alone(
    laptops: tuple[Laptop, Laptop], clock: ManualClock
) -> None:
    one, two = laptops
    assert two.harness.agents.get("assistant").config.schedule is not None
    for hour in range(1, 6):
        clock.advance((NOON + timedelta(hours=hour) - clock.now()).total_seconds())
        order = (one, two) if hour % 2 else (two, one)
        for machine in order:
            machine.harness.run_jobs()
    fired = [[run.created_at[:13] for run in runs(machine.harness)] for machine in laptops]
    assert fired == [
        ["2026-06-01T13", "2026-06-01T15", "2026-06-01T17"],
        ["2026-06-01T14", "2026-06-01T16"],
    ]
    assert one.follow().troubles == two.follow().troubles == []


def test_a_machine_that_died_behind_its_claim_fires_the_tick_later(
    laptops: tuple[Laptop, Laptop], clock: ManualClock
) -> None:
    one, two = laptops
    clock.advance((NOON + timedelta(hours=1) - clock.now()).total_seconds())
    agent = one.harness.agents.get("assistant")
    ticks, machine = one.harness.rooms.scheduler.ticks, one.harness.rooms.scheduler.machine
    assert ticks is not None
    assert ticks.claim(agent.id, clock.now(), machine)
    two.harness.run_jobs()
    assert runs(two.harness) == []
    one.harness.run_jobs()
    assert [run.status for run in runs(one.harness)] == ["succeeded"]


def test_a_tick_that_cannot_be_claimed_is_recorded_as_skipped(
    tmp_path: Path, clock: ManualClock
) -> None:
    prefix, faults = MemoryPrefix(), list[StoreFault]()

    def plan() -> Iterator[StoreFault]:
        while True:
            yield faults[0] if faults else StoreFault.NONE

    cut = MemoryPrefix(FaultyBlobs(prefix.store, plan(), "cut"))
    one = Laptop(tmp_path / "one", cut, clock, joins=False)
    scheduled(one.harness, "0 * * * *")
    faults.append(StoreFault.BEFORE)
    until(one.harness, clock, NOON + timedelta(hours=1))
    faults.clear()
    until(one.harness, clock, NOON + timedelta(hours=2))
    skipped, ran = runs(one.harness)
    assert (skipped.status, skipped.error and skipped.error.code) == ("skipped", "unavailable")
    assert ran.status == "succeeded"


def test_active_memory_that_arrives_by_sync_is_turned_on_once(
    laptops: tuple[Laptop, Laptop],
) -> None:
    one, two = laptops
    two.harness.run("said before", is_shared=True)
    one.harness.runs.set_memory("assistant", is_enabled=True)
    one.sync()
    two.sync()
    agent = two.harness.agents.get("assistant")
    memories = two.harness.runs.memories
    first = memories.state(agent.id)
    assert (first.is_enabled, first.generation, first.session_id) == (True, 1, None)
    two.harness.run("said after", is_shared=True)
    one.harness.agents.patch("assistant", {"config": {"system": "You are brief."}})
    one.sync()
    two.sync()
    again = memories.state(agent.id)
    assert (again.generation, again.session_id is None) == (1, False)


def test_a_real_s3_server_gives_each_tick_to_one_of_two_joined_homes(
    tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    location = f"s3://{BUCKET}/{new_id('test')}"
    monkeypatch.setenv("HARNESS_S3", location)
    how: dict[str, Any] = {"clock": clock, "sandbox": NoSandbox("not here")}
    with Harness.open(tmp_path / "one", model=Yes(), **how) as one:
        scheduled(one, "0 * * * *")
        assert one.following is not None
        one.following.sync()
        one.workspaces.sync(one.workspaces.get("notes").record.id).run()
        join(tmp_path / "two", location)
        with Harness.open(tmp_path / "two", model=Yes(), **how) as two:
            assert two.following is not None
            two.following.attach("notes")
            two.following.sync()
            for hour in range(1, 4):
                clock.advance((NOON + timedelta(hours=hour) - clock.now()).total_seconds())
                threads = [threading.Thread(target=home.run_jobs) for home in (one, two)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            hours = sorted(run.created_at[:13] for home in (one, two) for run in runs(home))
            assert hours == ["2026-06-01T13", "2026-06-01T14", "2026-06-01T15"]
