"""Two ways of doing a thing, taken in turns, so that what disturbs one disturbs the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def compare(
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    rounds: int,
    timer: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """The medians of both, in seconds. `timer` may count processor time instead."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            begin = timer()
            (ours, peer)[side]()
            times[side].append(timer() - begin)
    return median(times[0]), median(times[1])


def report(claim: str, ours: float, peer: float, *, at_most: float | None) -> None:
    """`at_most` None: a figure to know, without a goal."""
    ratio = ours / peer
    if at_most is None:
        told = "(no goal)"
    else:
        told = f"(goal ≤ {at_most:g})  {'ok' if ratio <= at_most else 'MISSED'}"
    print(f"{claim:<76} {ratio:6.2f} ×  {told}", flush=True)
