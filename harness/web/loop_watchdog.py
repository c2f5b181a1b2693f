"""A watchdog over an event loop: it tells, in the log, when the loop stood still, and where.

While one piece of code keeps the loop, nobody is served, and no signal is heard. So a thread asks the loop
for a sign of life, again and again. A loop that takes longer than `STALL_S` for it stood still. One warning
says for how long, with the stack of the loop's thread, taken while the loop stood there.

A machine that is busy makes everything late, and that is no fault of the code. So two times are subtracted
from what passed until the sign came:

- the time that the loop's thread was ready to run and was given no processor. Linux counts it for each
  thread; elsewhere it is not known, and nothing is subtracted;
- the time by which the watchdog itself woke too late, without what this process computed meanwhile. Where
  the process did compute, one of its threads held the interpreter's lock: that is a fault of ours.

Both often are the same time, so of each sleep of the watchdog the longer of the two is subtracted. What is
left is what this process did to its own loop: code that computed, or that waited for something (a lock, a
disk, `time.sleep`) while the watchdog woke on time. What waits while the machine is busy may be told as
shorter than it was, or not at all.

Two things cannot be seen from here. A stall that began just before the loop was asked seems shorter, by
`ASK_EVERY_S` at most. And while code in C holds the interpreter's lock, this thread cannot run either: such
a stall is told when it is over, with its duration, and perhaps without a stack.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from harness.runtime.json_log import FRAMES_MAX, event

STALL_S = 0.2
"""Who waits for a page notices it, and every other caller waits as well."""

ASK_EVERY_S = 0.05
LOOK_EVERY_S = 0.02
"""While the loop has not answered. Twenty wakes a second, and fifty in a stall, cost less than a thousandth
of a processor."""

TELL_AFTER_S = 10.0
"""A stall that lasts so long is told before it ends: perhaps it never does."""

STALLED = "loop stood still"

_log = logging.getLogger("harness.web")


@dataclass(frozen=True, slots=True)
class LoopSample:
    """The clocks at one moment, in seconds."""

    at: float
    computed_s: float
    """By all threads of this process."""
    queued_s: float
    """For which the loop's thread was ready to run and was not."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """One of the watchdog's, while the loop had not answered."""

    passed_s: float
    late_s: float
    """By which it was longer than planned, without what the process computed in it."""
    queued_s: float
    """What was counted in it: the last of a time that may have begun in a sleep before."""


class LoopStall:
    """How long the loop has been waited for, and how much of that the machine took."""

    def __init__(self, first: LoopSample) -> None:
        self._last = first
        self._sleeps: list[Sleep] = []

    def add(self, now: LoopSample, *, planned_s: float) -> None:
        """Count the sleep of the watchdog from the last reading to this one."""
        passed_s = now.at - self._last.at
        computed_s = now.computed_s - self._last.computed_s
        late_s = max(0.0, passed_s - planned_s - computed_s)
        self._sleeps.append(Sleep(passed_s, late_s, now.queued_s - self._last.queued_s))
        self._last = now

    @property
    def stood_s(self) -> float:
        """For how long the loop stood still because of what this process did."""
        stood_s = queued_s = 0.0
        for sleep in reversed(self._sleeps):
            queued_s += sleep.queued_s
            in_queue_s = min(queued_s, sleep.passed_s)
            queued_s -= in_queue_s
            stood_s += sleep.passed_s - max(in_queue_s, sleep.late_s)
        return stood_s


@contextmanager
def watched(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Watch the loop that runs in the calling thread, until the end of the block."""
    watchdog = _Watchdog(loop, threading.get_ident(), _queue_clock(threading.get_native_id()))
    thread = threading.Thread(target=watchdog.run, name="harness-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.ends.set()
        thread.join()  # it sleeps for a moment at most


class _Watchdog:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread_id: int, queue_clock: Callable[[], float]
    ) -> None:
        self.ends = threading.Event()
        self._loop = loop
        self._thread_id = thread_id
        self._queue_clock = queue_clock

    def run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while not self.ends.wait(ASK_EVERY_S):
                self._ask()

    def _ask(self) -> None:
        """Wait for one sign of life, and tell it if the loop stood still meanwhile."""
        answer = _Answer(self._reading)
        asked = self._reading()
        wait = LoopStall(asked)
        stack: list[str] = []
        self._loop.call_soon_threadsafe(answer.give)
        while not answer.given.wait(LOOK_EVERY_S):
            wait.add(self._reading(), planned_s=LOOK_EVERY_S)
            if not stack and wait.stood_s > STALL_S / 2:
                stack = self._stack()  # now: when it is over, the loop is somewhere else
            if wait.stood_s > TELL_AFTER_S or self.ends.is_set():
                break
        else:
            wait.add(answer.reading or asked, planned_s=LOOK_EVERY_S)
        if wait.stood_s > STALL_S:
            event(
                _log,
                STALLED,
                level=logging.WARNING,
                seconds=round(wait.stood_s, 2),
                still=not answer.given.is_set(),
                where=stack,
            )
        while not answer.given.is_set() and not self.ends.is_set():
            answer.given.wait(LOOK_EVERY_S)  # told already: one warning a stall

    def _reading(self) -> LoopSample:
        return LoopSample(time.monotonic(), time.process_time(), self._queue_clock())

    def _stack(self) -> list[str]:
        """Return where the loop's thread is, in the form that the log has for errors."""
        frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage]
        inner = islice(traceback.walk_stack(frame), FRAMES_MAX) if frame else ()
        told = [f"{one.f_code.co_filename}:{line} {one.f_code.co_name}" for one, line in inner]
        return told[::-1]


class _Answer:
    """What the loop gives as its sign of life: the clocks at the moment at which it went on."""

    def __init__(self, read: Callable[[], LoopSample]) -> None:
        self.given = threading.Event()
        self.reading: LoopSample | None = None
        self._read = read

    def give(self) -> None:
        self.reading = self._read()
        self.given.set()


def _queue_clock(native_id: int) -> Callable[[], float]:
    """Return what tells for how many seconds this thread has been ready to run and was not, so far."""
    counts = Path(f"/proc/self/task/{native_id}/schedstat")
    if not counts.exists():
        return lambda: 0.0

    def queued_s() -> float:
        return int(counts.read_bytes().split()[1]) / 1e9

    return queued_s
