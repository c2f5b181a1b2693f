"""Background tasks run until they are cancelled and are restarted after a crash."""

from __future__ import annotations

import asyncio
import io
import json
import logging

from harness.jobs.background_task import STEADY_S, BackgroundTasks
from harness.runtime.json_log import JsonLines
from workspaces.clock import ManualClock

WAIT_S_MAX = 60.0


class Steady:
    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True


class Crashing:
    """Crashes so many times, then lives."""

    def __init__(self, times: int, clock: ManualClock | None = None, lives_s: float = 0) -> None:
        self.left = times
        self.lives = asyncio.Event()
        self._clock = clock
        self._lives_s = lives_s

    async def run(self) -> None:
        if self.left:
            self.left -= 1
            if self._clock is not None:
                self._clock.advance(self._lives_s)
            raise ValueError("what was written in somebody's file")
        self.lives.set()
        await asyncio.Event().wait()


class Ending:
    def __init__(self) -> None:
        self.runs = 0
        self.again = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        if self.runs > 1:
            self.again.set()
            await asyncio.Event().wait()


def logged() -> tuple[logging.Handler, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.getLogger("harness.jobs.background_task").addHandler(handler)
    return handler, stream


def test_background_tasks_are_cancelled_and_awaited_at_the_end() -> None:
    async def story() -> None:
        steady = Steady()
        residents = BackgroundTasks({"steady": steady}, ManualClock())
        async with residents.living():
            await asyncio.wait_for(steady.began.wait(), WAIT_S_MAX)
            assert residents.conditions["steady"].state == "running"
        assert steady.ended

    asyncio.run(story())


def test_a_crashed_background_task_is_restarted_and_does_not_disturb_another() -> None:
    handler, stream = logged()

    async def story() -> None:
        steady, crashing = Steady(), Crashing(3)
        residents = BackgroundTasks(
            {"steady": steady, "crashing": crashing}, ManualClock(), pause_s=0.001
        )
        async with residents.living():
            await asyncio.wait_for(crashing.lives.wait(), WAIT_S_MAX)
            condition = residents.conditions["crashing"]
            assert (condition.state, condition.crashes) == ("running", 3)
            assert condition.error == "ValueError"
            assert residents.conditions["steady"].crashes == 0
            assert not steady.ended

    try:
        asyncio.run(story())
    finally:
        logging.getLogger("harness.jobs.background_task").removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["resident crashed"] * 3
    assert [line["again_in_s"] for line in lines] == [0, 0.001, 0.002]
    assert {line["resident"] for line in lines} == {"crashing"}
    assert lines[0]["error"] == "ValueError"
    assert "test_background_task" in lines[0]["where"][-1]
    assert "somebody" not in stream.getvalue()


def test_a_long_run_without_a_crash_resets_the_restart_pause() -> None:
    handler, stream = logged()

    async def story() -> None:
        clock = ManualClock()
        crashing = Crashing(3, clock, STEADY_S)
        async with BackgroundTasks({"it": crashing}, clock, pause_s=1000).living():
            await asyncio.wait_for(crashing.lives.wait(), WAIT_S_MAX)

    try:
        asyncio.run(story())
    finally:
        logging.getLogger("harness.jobs.background_task").removeHandler(handler)
    pauses = [json.loads(line)["again_in_s"] for line in stream.getvalue().splitlines()]
    assert pauses == [0, 0, 0]


def test_a_background_task_that_returns_is_restarted() -> None:
    async def story() -> None:
        ending = Ending()
        residents = BackgroundTasks({"ending": ending}, ManualClock(), pause_s=0.001)
        async with residents.living():
            await asyncio.wait_for(ending.again.wait(), WAIT_S_MAX)
            assert residents.conditions["ending"].error == "it ended"

    asyncio.run(story())
