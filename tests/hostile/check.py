"""Running one call on hostile text and saying whether its time grows too fast.

Processor time, since a busy machine changes little of it. What is done in a millisecond at 10 kB is not asked
again: squared, that is a tenth of a second at 100 kB.
"""

from __future__ import annotations

import gc
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.hostile.families import Hostile

SMALL, LARGE = 10_000, 100_000
GROWTH_MAX = 25
CALL_S_MAX = 2.0
QUICK_S = 0.001
"""At the small size: nothing to find out."""
FLOOR_S = 0.1
"""At the large size: quick, however it grew."""
AGAIN = 3
"""A call that seems too slow is measured again, since a machine's caches and clock favour none."""
CALLS_MAX = 100
"""Of which the mean is taken."""
WHOLE_S_MAX = 120
"""Of a child, in which no call holds the interpreter so long that its own limit is not heard."""


class TooLong(BaseException):
    """The call took longer than a call may."""


def limit() -> None:
    """Let calls be interrupted by `TooLong`, and this process be killed when they cannot be."""
    resource.setrlimit(resource.RLIMIT_CPU, (WHOLE_S_MAX, WHOLE_S_MAX))
    signal.signal(signal.SIGPROF, _stop)


def too_slow(
    call: Callable[[Any], object],
    family: Iterable[Hostile],
    as_input: Callable[[str], Any] = str,
    *,
    call_s_max: float = CALL_S_MAX,
) -> str | None:
    """Return what the call is too slow with, and how; None when it is quick with all of these."""
    for hostile in family:
        small = as_input(hostile.text(SMALL))
        begun = time.perf_counter()
        try:
            with _limited(call_s_max):
                call(small)
            if time.perf_counter() - begun < QUICK_S:
                continue
            large = as_input(hostile.text(LARGE))
            with _limited(call_s_max):
                took = _time(call, large)
        except TooLong:
            return f"more than {call_s_max} s with {hostile}"
        if took > FLOOR_S and (growth := took / _mean(call, small)) > GROWTH_MAX:
            took = min(took, *(_time(call, large) for _ in range(AGAIN)))
            growth = took / _mean(call, small)
            if took > FLOOR_S and growth > GROWTH_MAX:
                return (
                    f"{took:.2f} s, {growth:.0f} times as long for 10 times as much, with {hostile}"
                )
    return None


def _time(call: Callable[[Any], object], value: Any) -> float:
    """Return what one call costs, without the garbage of others that would be collected in it."""
    gc.disable()
    try:
        begun = time.process_time()
        call(value)
        return time.process_time() - begun
    finally:
        gc.enable()


def _mean(call: Callable[[Any], object], value: Any) -> float:
    """Over as many calls as the clock needs, which on some systems ticks every 4 ms."""
    begun = time.process_time()
    took, times = 0.0, 0
    while took < FLOOR_S / 2 and times < CALLS_MAX:
        call(value)
        took, times = time.process_time() - begun, times + 1
    return max(took / times, QUICK_S)


@contextmanager
def _limited(call_s_max: float) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, call_s_max)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _stop(*_: object) -> None:
    raise TooLong
