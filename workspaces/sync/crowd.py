"""Many requests, several in flight at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

THREADS = 32
"""Requests in flight: more does not make a store on one machine faster, and hides 50 ms of distance."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Crowd:
    threads: int = THREADS
    """1: everything happens in the caller's thread, in order."""

    def all(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results in the order of the items."""
        threads = min(self.threads, len(items))
        if threads <= 1:
            yield from map(do, items)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(do, items)
