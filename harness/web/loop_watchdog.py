"""A watchdog for an event loop: it logs when and where the loop was blocked.

While one piece of code blocks the loop, no request is served and no signal is handled. So a thread repeatedly
asks the loop for an answer. If the answer takes longer than `STALL_S`, the loop was blocked. One warning per
stall says how long, with the stack of the loop's thread at that time.

A busy machine makes everything late, and that is not a fault of the code. So the watchdog subtracts two times
from the time until the answer:

- the time for which the loop's thread was ready to run and had no processor. Linux counts it for each thread.
  On other systems it is unknown, and nothing is subtracted;
- the time by which the watchdog itself woke up late, without the time that this process computed meanwhile.
  If the process computed, one of its threads held the interpreter's lock: that is a fault of this program.

Both are often the same time. So the watchdog subtracts the longer of the two for each of its sleeps. The rest
is the time for which this process blocked its own loop: code that computed, or that waited for a lock, a disk
or `time.sleep`, while the watchdog woke up on time. If code waits while the machine is busy, the logged time
may be too short, or the stall may not be logged.

The watchdog has two blind spots. A stall that began just before a question seems shorter, by at most
`ASK_EVERY_S`. And while C code holds the interpreter's lock, this thread cannot run. Such a stall is logged
when it is over, with its duration but perhaps without a stack.
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
"""Seconds without an answer that count as a stall. A person who waits for a page notices this delay, and
every other caller waits too."""

ASK_EVERY_S = 0.05
LOOK_EVERY_S = 0.02
"""Seconds between checks while the loop has not answered. Twenty wakes a second, and fifty in a stall, cost
less than a thousandth of a processor."""

LOG_AFTER_S = 10.0
"""Seconds after which a stall is logged although it has not ended. It may never end."""

STALLED = "loop stood still"

_log = logging.getLogger("harness.web")


@dataclass(frozen=True, slots=True)
class LoopSample:
    """The clocks at one moment, in seconds."""

    at: float
    computed_s: float
    """Processor time of all threads of this process."""
    queued_s: float
    """Time for which the loop's thread was ready to run but had no processor."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """A sleep of the watchdog while the loop had not answered."""

    passed_s: float
    late_s: float
    """Time by which it was longer than planned, without the computing time of the process."""
    queued_s: float
    """Waiting time that was counted in it. The wait may have begun in an earlier sleep."""


class LoopStall:
    """The wait for one answer of the loop, and the part of it that the machine caused."""

    def __init__(self, first: LoopSample) -> None:
        self._last = first
        self._sleeps: list[Sleep] = []

    def add(self, now: LoopSample, *, planned_s: float) -> None:
        """Add the sleep of the watchdog between the last sample and this one."""
        passed_s = now.at - self._last.at
        computed_s = now.computed_s - self._last.computed_s
        late_s = max(0.0, passed_s - planned_s - computed_s)
        self._sleeps.append(Sleep(passed_s, late_s, now.queued_s - self._last.queued_s))
        self._last = now

    @property
    def stood_s(self) -> float:
        """Return the seconds for which this process blocked the loop."""
        stood_s = queued_s = 0.0
        for sleep in reversed(self._sleeps):
            queued_s += sleep.queued_s
            in_queue_s = min(queued_s, sleep.passed_s)
            queued_s -= in_queue_s
            stood_s += sleep.passed_s - max(in_queue_s, sleep.late_s)
        return stood_s


@contextmanager
def watched(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Watch the loop of the calling thread until the end of the block."""
    watchdog = _Watchdog(loop, threading.get_ident(), _queue_clock(threading.get_native_id()))
    thread = threading.Thread(target=watchdog.run, name="harness-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        watchdog.ends.set()
        thread.join()  # its sleeps are short


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
        """Wait for one answer of the loop. Log a warning if the loop was blocked meanwhile."""
        answer = _Answer(self._reading)
        start = self._reading()
        wait = LoopStall(start)
        stack: list[str] = []
        self._loop.call_soon_threadsafe(answer.give)
        while not answer.given.wait(LOOK_EVERY_S):
            wait.add(self._reading(), planned_s=LOOK_EVERY_S)
            if not stack and wait.stood_s > STALL_S / 2:
                stack = self._stack()  # now: after the stall the loop runs other code
            if wait.stood_s > LOG_AFTER_S or self.ends.is_set():
                break
        else:
            wait.add(answer.reading or start, planned_s=LOOK_EVERY_S)
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
            answer.given.wait(LOOK_EVERY_S)  # already logged: one warning per stall

    def _reading(self) -> LoopSample:
        return LoopSample(time.monotonic(), time.process_time(), self._queue_clock())

    def _stack(self) -> list[str]:
        """Return the stack of the loop's thread, in the form that the log has for errors."""
        frame = sys._current_frames().get(self._thread_id)  # pyright: ignore[reportPrivateUsage]
        inner = islice(traceback.walk_stack(frame), FRAMES_MAX) if frame else ()
        lines = [f"{one.f_code.co_filename}:{line} {one.f_code.co_name}" for one, line in inner]
        return lines[::-1]


class _Answer:
    """The answer of the loop: the clocks at the moment when the loop ran again."""

    def __init__(self, read: Callable[[], LoopSample]) -> None:
        self.given = threading.Event()
        self.reading: LoopSample | None = None
        self._read = read

    def give(self) -> None:
        self.reading = self._read()
        self.given.set()


def _queue_clock(native_id: int) -> Callable[[], float]:
    """Return a clock of the seconds for which this thread was ready to run but had no processor."""
    counts = Path(f"/proc/self/task/{native_id}/schedstat")
    if not counts.exists():
        return lambda: 0.0

    def queued_s() -> float:
        return int(counts.read_bytes().split()[1]) / 1e9

    return queued_s
