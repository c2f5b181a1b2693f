"""What state machines share: how long they run, and a store whose answers get lost on request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, settings

from workspaces.clock import ManualClock
from workspaces.storage.faulty import FaultyRecords, StoreFault
from workspaces.storage.in_memory import MemoryRecords

SOAK = bool(os.environ.get("SOAK"))

BOUNDED = settings(
    max_examples=3_000 if SOAK else 120,
    stateful_step_count=50,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

UNSHRUNK = settings(
    BOUNDED,
    max_examples=5_000,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
"""For mutants: that they fail is the point, not how. Always the same examples, so that a mutant is not
caught on most days only."""


class Flaky:
    """One store for all, and for each of `names` a wire to it that can lose a message, and a clock of its
    own. The clocks go at one pace and show different times."""

    def __init__(self, *names: str) -> None:
        self.true_clock = ManualClock()
        self.store = MemoryRecords(self.true_clock)
        self.clocks = {name: ManualClock() for name in names}
        for number, clock in enumerate(self.clocks.values()):
            clock.jump(number * 40.0)
        self._next: dict[str, list[StoreFault | Callable[[], None]]] = {name: [] for name in names}
        self._is_between = False
        self.wires = {name: FaultyRecords(self.store, self._plan(name), name) for name in names}

    def lose_next(self, name: str, fault: StoreFault, after: int) -> None:
        """So many messages go through first."""
        self._next[name] = [*[StoreFault.NONE] * after, fault]

    def meanwhile(self, name: str, event: Callable[[], None], after: int) -> None:
        """So many messages go through first; before the next one, something happens elsewhere."""
        self._next[name] = [*[StoreFault.NONE] * after, event]

    def quiet(self) -> None:
        for plan in self._next.values():
            plan.clear()

    def advance(self, seconds: float) -> None:
        self.true_clock.advance(seconds)
        for clock in self.clocks.values():
            clock.advance(seconds)

    def _plan(self, name: str) -> Iterator[StoreFault]:
        while True:
            plan = self._next[name]
            coming = plan.pop(0) if plan else StoreFault.NONE
            if not isinstance(coming, StoreFault):
                self._come_between(coming)
                coming = StoreFault.NONE
            yield coming

    def _come_between(self, event: Callable[[], None]) -> None:
        """Not while something comes between already: that wire waits for this one."""
        if not self._is_between:
            self._is_between = True
            event()
            self._is_between = False
