"""A loop that stands still is told in the log, and no body makes it stand still."""

from __future__ import annotations

import asyncio
import io
import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI

from harness.web import loop_watchdog
from harness.web.loop_watchdog import LOOK_EVERY_S, STALL_S, STALLED, Reading, Wait, watched
from tests.web.serving import WAIT_S
from tests.web.site import captured_log
from tests.web.wire import Running, running

MB = 2**20
AGENTS = "/accounts/me/agents"
EVENTS = "/v1/agents/assistant/events"

Log = list[dict[str, Any]]


def stalls(log: str) -> Log:
    """What a watchdog told."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == STALLED]


def waited(*sleeps: tuple[float, float, float]) -> float:
    """For how long the loop stood still: each sleep of the watchdog as what passed, what the process computed
    and for how long the loop's thread was in the queue of the processor."""
    now = Reading(100.0, 5.0, 1.0)
    wait = Wait(now)
    for passed_s, computed_s, queued_s in sleeps:
        now = Reading(now.at + passed_s, now.computed_s + computed_s, now.queued_s + queued_s)
        wait.add(now, planned_s=LOOK_EVERY_S)
    return wait.stood_s


def test_a_loop_that_waits_while_the_watchdog_wakes_on_time_stood_still() -> None:
    assert waited(*[(LOOK_EVERY_S, 0.0, 0.0)] * 20) == pytest.approx(20 * LOOK_EVERY_S)


def test_a_loop_that_computes_or_waits_for_a_thread_that_does_stood_still() -> None:
    assert waited((0.5, 0.5, 0.0)) == pytest.approx(0.5)


def test_a_process_that_the_machine_gave_nothing_did_not_stand_still() -> None:
    assert waited((0.5, 0.0, 0.0), (0.9, 0.01, 0.0)) < STALL_S / 2


def test_a_loop_that_was_in_the_queue_of_the_processor_did_not_stand_still() -> None:
    """The queue is counted when it ends: a time too late for the sleeps in which it was waited for."""
    assert waited(*[(LOOK_EVERY_S, 0.0, 0.0)] * 20, (0.01, 0.01, 0.4)) < STALL_S / 2


def test_what_the_machine_took_of_a_stall_is_not_a_part_of_it() -> None:
    assert waited((0.5, 0.3, 0.0)) == pytest.approx(0.3 + LOOK_EVERY_S)
    assert waited((0.5, 0.5, 0.2)) == pytest.approx(0.3)
    assert waited((2.0, 0.3, 1.7)) == pytest.approx(0.3), (
        "it waited for a processor as the watchdog did"
    )


async def nap() -> dict[str, bool]:
    """As a route: it keeps the loop, and not a processor."""
    time.sleep(0.3)  # noqa: ASYNC251
    return {}


def test_each_stall_is_one_warning_with_its_duration_and_where_the_loop_stood(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "home") as server:
        app = cast(FastAPI, server.server.config.app)
        app.add_api_route("/nap", nap)
        naps = asked_until_told(server)
        (told, *others) = stalls(server.log.getvalue())
    assert len(others) < naps
    assert told["level"] == "warning"
    assert STALL_S < told["seconds"] < 0.3 + STALL_S
    assert told["still"] is False
    assert told["where"][-1].startswith(f"{__file__}:")
    assert told["where"][-1].endswith(" nap")


def asked_until_told(server: Running) -> int:
    """How often it was asked for: what a busy machine takes of a stall is not told."""
    for number in range(1, 100):
        assert server.ask(server.head("GET", "/nap")).status == 200
        assert server.is_well  # whoever is told of it is told by now, or in a moment
        try:
            assert_never_stood_still(server.log.getvalue())
        except AssertionError:
            return number
    raise AssertionError("no stall was told")


def test_a_stall_that_does_not_end_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watchdog, "TELL_AFTER_S", 2 * STALL_S)

    def stand_still(log: io.StringIO) -> None:
        deadline = time.monotonic() + WAIT_S
        while not stalls(log.getvalue()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(2 * STALL_S)  # and on

    async def watch(log: io.StringIO) -> None:
        with watched(asyncio.get_running_loop()):
            stand_still(log)
            await asyncio.sleep(0.1)

    with captured_log() as log:
        asyncio.run(watch(log))
        (told,) = stalls(log.getvalue())
    assert told["still"] is True
    assert any(frame.endswith(" stand_still") for frame in told["where"])


def assert_never_stood_still(log: str) -> None:
    assert stalls(log) == []
