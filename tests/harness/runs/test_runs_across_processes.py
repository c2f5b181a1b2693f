"""Runs and schedules across processes: kills at every point, clocks that jump, nights of daylight saving."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.runs.crashing import Scribe, fire_with_a_jumping_clock, kill_runs_everywhere
from tests.harness.talk import opened
from tests.harness.web.serving import Server, home_at
from tests.machines import SOAK
from tests.workspaces.actors import run, start
from workspaces.clock import ManualClock

WAIT_S = 300.0
PROCESSES, ROUNDS = 4, 12


def test_a_killed_run_is_brought_to_its_end_by_another_process_and_moves_the_session_once(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    told: list[dict[str, Any]] = json.loads(run(kill_runs_everywhere, str(home), wait_s=WAIT_S))
    assert not told[-1]["killed"]
    assert len(told) > 20  # queued, before the model, in a tool, before the session moves
    before = None
    for number, one in enumerate(told, start=1):
        done, memory = one["run"], one["memory"]
        assert done["status"] == "succeeded", (number, done)
        assert done["sessionIdBefore"] == before
        assert memory["sessionId"] == done["sessionIdAfter"]
        assert memory["runsSinceReset"] == number
        before = done["sessionIdAfter"]


def test_four_processes_with_jumping_clocks_fire_each_tick_at_most_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    rooms = opened(home, Scribe(str(tmp_path)), ManualClock(datetime(2026, 6, 1, 12, tzinfo=UTC)))
    schedule = {"cron": "*/10 * * * *", "timezone": "Europe/Vienna"}
    config = {"defaultPrompt": "go", "schedule": schedule}
    rooms.agents.patch("assistant", {"config": config})
    children = [
        start(fire_with_a_jumping_clock, str(home), seed, ROUNDS) for seed in range(PROCESSES)
    ]
    assert [child.wait(WAIT_S) for child in children] == [0] * PROCESSES
    runs = [view.run for view in rooms.runs.list("assistant")]
    done = [one for one in runs if one.status == "succeeded"]
    assert done
    assert {one.status for one in runs} <= {"succeeded", "skipped", "queued"}
    assert len(list((home / "asked").iterdir())) == len(done)
    for one in done:
        conversation = rooms.conversations.get(str(one.conversation_id))
        entries = list(rooms.conversations.transcript(conversation).entries())
        assert [entry.message.text for entry in entries] == ["go", "yes"]
    rooms.records.close()


@pytest.mark.parametrize(
    ("starts", "ticks"),
    [
        # 02:30 does not exist: the run comes at 03:00, once
        (["2026-03-29T00:59:30+00:00"], 1),
        # 02:30 exists twice: the run comes at the first one alone
        pytest.param(
            ["2026-10-25T00:29:30+00:00", "2026-10-25T01:29:40+00:00"],
            1,
            marks=pytest.mark.skipif(not SOAK, reason="two nights take a minute and a half"),
        ),
    ],
)
def test_real_servers_fire_once_in_a_night_of_daylight_saving(
    tmp_path: Path, starts: list[str], ticks: int
) -> None:
    place = tmp_path / "home"
    is_set = False
    seen: list[Any] = []
    for moment in starts:
        ahead = datetime.fromisoformat(moment).timestamp() - time.time()
        home = home_at(place, HARNESS_CLOCK_SHIFT=f"{ahead:.0f}")
        with home.served() as one, home.served() as two:
            if not is_set:
                schedule = {"cron": "30 2 * * *", "timezone": "Europe/Vienna"}
                config = {"defaultPrompt": "go", "schedule": schedule}
                one.ask("PATCH", "/accounts/me/agents/assistant", {"config": config})
                is_set = True
            seen = _runs_after(two, seconds=42.0)
    assert [run["source"] for run in seen] == ["schedule"] * ticks
    assert {run["status"] for run in seen} == {"succeeded"}


def _runs_after(server: Server, *, seconds: float) -> list[Any]:
    """The runs when the clock has passed the tick, and none is under way."""
    until, give_up_at = time.monotonic() + seconds, time.monotonic() + WAIT_S
    while True:
        runs = server.ask("GET", "/api/agents/assistant/runs")["runs"]
        is_at_rest = all(run["status"] not in {"queued", "running"} for run in runs)
        if time.monotonic() > until and is_at_rest:
            return runs
        assert time.monotonic() < give_up_at
        time.sleep(0.2)
