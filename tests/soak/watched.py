"""A server under traffic, and what it holds: memory and file descriptors (Linux)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.web.serving import home_at
from tests.soak.traffic import FAILURES_TOLD, Client, Gate, Tally, going_on
from tests.soak.trend import DESCRIPTORS, RESIDENT, is_broken, told

SAMPLE_S = 30.0
"""A sample waits until all rounds have ended, and keeps new ones waiting."""
SAMPLES_MIN = 30
"""However short the run is."""
LOOKS = 5
LOOK_S = 0.02
"""A connection is closed a moment after its answer: of several looks, the fewest descriptors count."""

_RESIDENT_KIB = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


@dataclass
class Watched:
    """What was seen of one server."""

    minutes: float
    resident: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    descriptors: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    requests: int = 0
    failures: list[str] = field(default_factory=list[str])

    def lines(self, warm_up_minutes: float) -> list[str]:
        measured_s = self.minutes * 60
        return [
            f"server: {self.minutes:.1f} minutes after {warm_up_minutes:.1f} of warm-up, "
            f"{self.requests} requests ({self.requests / measured_s:.1f}/s), "
            f"{len(self.failures)} failures",
            *(f"  {failure}" for failure in self.failures[:FAILURES_TOLD]),
            f"  {told(RESIDENT, self.resident)}",
            f"  {told(DESCRIPTORS, self.descriptors)}",
        ]

    @property
    def broken(self) -> list[str]:
        """The names of what must not be."""
        pairs = ((RESIDENT, self.resident), (DESCRIPTORS, self.descriptors))
        grown = [bound.name for bound, seen in pairs if is_broken(bound, seen, self.minutes)]
        return [*grown, *(["requests"] if self.failures or not self.requests else [])]


def watch(home: Path, minutes: float, warm_up_minutes: float, stop: threading.Event) -> Watched:
    """Serve a new home, send it traffic, and return what was seen after the warm-up."""
    seen, gate, tally = Watched(minutes), Gate(), Tally()
    every_s = min(SAMPLE_S, minutes * 60 / SAMPLES_MIN)
    at_home = home_at(home)
    with at_home.served() as server:

        def client(number: int) -> Client:
            return Client(server.url, server.key, gate, tally, threading.Event(), number)

        with going_on(client):
            stop.wait(warm_up_minutes * 60)
            begun, asked = time.monotonic(), tally.requests
            while (now := time.monotonic() - begun) < minutes * 60 and not stop.is_set():
                if server.process.poll() is not None:
                    seen.failures.append(f"the server ended with {server.process.returncode}")
                    break
                with gate.closed():
                    resident, descriptors = held(server.process.pid, stop.wait)
                seen.resident.append((now, resident))
                seen.descriptors.append((now, descriptors))
                stop.wait(every_s)
            seen.minutes = (time.monotonic() - begun) / 60
            seen.requests = tally.requests - asked
        seen.failures += tally.failures
    return seen


def held(pid: int, wait: Callable[[float], object]) -> tuple[float, int]:
    """Return the resident megabytes and the open descriptors of a process."""
    fewest = None
    for _ in range(LOOKS):
        count = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        fewest = count if fewest is None else min(fewest, count)
        wait(LOOK_S)
    found = _RESIDENT_KIB.search(Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    assert fewest is not None
    return int(found[1]) / 1024, fewest
