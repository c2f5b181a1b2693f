"""The check whether commands can be confined: it is repeated, but not for every turn."""

from __future__ import annotations

from pathlib import Path

from harness import Harness
from harness.runtime.json_log import EVENTS
from harness.sandboxes.none import NoSandbox
from harness.sandboxes.port import Confinement
from harness.tools.programs import PROGRAMS_AGAIN_S
from workspaces.clock import ManualClock


class Recovering(NoSandbox):
    """One that does not confine until somebody has put it right."""

    def __init__(self) -> None:
        super().__init__("not yet")
        self.asked = 0
        self.works = False

    async def check(self) -> Confinement:
        self.asked += 1
        return Confinement(self.works, "" if self.works else "not yet")


def test_the_sandbox_check_is_repeated_after_its_interval_until_the_sandbox_works(
    tmp_path: Path,
) -> None:
    sandbox, clock = Recovering(), ManualClock()
    with Harness.open(tmp_path / "home", clock=clock, sandbox=sandbox) as harness:
        house = harness.house
        told: list[str] = []
        with EVENTS.including(lambda name, facts: told.append(f"{name}: {facts.get('reason')}")):
            assert house.programs().sandbox is None
            clock.advance(PROGRAMS_AGAIN_S)
            assert house.programs().sandbox is None
        assert told == ["no sandbox: not yet"]  # once, however often it is tried again
        assert [house.programs().sandbox for _ in range(3)] == [None] * 3
        assert sandbox.asked == 2
        sandbox.works = True
        clock.advance(PROGRAMS_AGAIN_S)
        assert house.programs().sandbox is sandbox
        clock.advance(10 * PROGRAMS_AGAIN_S)
        house.programs()
        assert sandbox.asked == 3
