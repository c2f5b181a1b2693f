"""Processes that bring runs to their end and die on the way, and processes that fire schedules.

The functions that take plain texts and numbers are run by `tests.workspaces.actors` in processes of their
own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.bootstrap.composition import Application, wire
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.messages.message import Message, Text
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit
from harness.runtime.settings import read_settings
from harness.sandboxes.none import NoSandbox
from tests.harness.talk import Deadly, Dying, Rule, forked, opened, runner_of
from workspaces.clock import ManualClock, SystemClock
from workspaces.ids import new_id

POINTS_MAX = 300
START = datetime(2026, 6, 1, 12, tzinfo=UTC)


def dying_rooms(home: str, number: int) -> PrincipalServices:
    """The services of a home, on a wire on which the process dies at this point."""
    settings = read_settings(Path(home), environment=dict(os.environ))
    whole = wire(settings)
    deadly = Deadly(whole.records)
    house = Application(
        settings,
        deadly,
        SystemClock(),
        place=None,
        large=whole.large,
        model=Dying(deadly.point),
        embedder=None,
        sandbox=NoSandbox("not here"),
    )
    rooms = house.rooms(house.owner())
    deadly.passed, deadly.die_at = 0, number
    return rooms


def kill_runs_everywhere(home: str) -> None:
    """One run after the other, each killed one point later; then another process brings it to its end."""
    rooms = opened(home, Rule(writes=True))
    rooms.agents.patch("assistant", {"config": {"activeMemory": True}})
    told: list[dict[str, Any]] = []
    for number in range(POINTS_MAX):
        run = rooms.runs.start("assistant", f"r{number}")

        def first(run_id: str = run.id, number: int = number) -> None:
            asyncio.run(dying_rooms(home, number).runs.wait(run_id))

        was_killed = not forked(first)
        done = asyncio.run(rooms.runs.wait(run.id))
        view = rooms.runs.memory("assistant")
        told.append({"killed": was_killed, "run": done.as_json(), "memory": view.as_json()})
        if not was_killed:
            break
    print(json.dumps(told))


class Scribe:
    """Says yes, and leaves a file for each question."""

    name = "scribe"

    def __init__(self, home: str) -> None:
        self._asked = Path(home) / "asked"
        self._asked.mkdir(exist_ok=True)

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        (self._asked / new_id("asked")).touch()
        return Reply(Message("assistant", (Text("yes"),)), Usage(1, 1))


def fire_with_a_jumping_clock(home: str, seed: int, rounds: int) -> None:
    """Do what is due, while this process's clock jumps to and fro."""
    clock, randomly = ManualClock(START), random.Random(seed)
    rooms = opened(home, Scribe(home), clock)
    runner = runner_of(rooms)
    for _ in range(rounds):
        clock.jump(randomly.choice([-3600, -60, 60, 600, 1800, 5400]))
        rooms.scheduler.correct()
        asyncio.run(runner.drain())
