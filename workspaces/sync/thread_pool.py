"""Run many requests with several in flight at the same time.

Each thread takes the next item as soon as it has finished one. The caller receives results in groups.
Handing over every item and every result singly takes threads nearly as long as a request to a store on
the same machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

THREADS = 32
"""Requests in flight. More do not speed up a store on the same machine. This many hide a latency of 50 ms."""

RESULTS_AT_ONCE = 32
"""Number of neighbouring items whose results are handed over together."""

T = TypeVar("T")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ThreadPool:
    threads: int = THREADS
    """With 1, everything runs in the caller's thread, in order."""

    def map(self, do: Callable[[T], Result], items: Sequence[T]) -> Iterator[Result]:
        """Yield the results in the order of the items."""
        threads = min(self.threads, len(items))
        if threads <= 1:
            yield from map(do, items)
            return
        with ThreadPoolExecutor(threads) as pool, ExitStack() as cleanup:
            yield from _start(do, items, pool, threads, cleanup)

    def map_batches(
        self,
        do: Callable[[T], Result],
        batches: Iterable[Sequence[T]],
        on_result: Callable[[T, Result], None] = lambda _item, _result: None,
    ) -> Generator[tuple[Sequence[T], list[Result]]]:
        """Yield each batch with its results, while the next batch is already running.

        `on_result` is called with each result as it is collected. Close the generator if it is not
        consumed to the end.
        """
        if self.threads <= 1:
            for batch in batches:
                yield batch, _collect(batch, map(do, batch), on_result)
            return
        with ThreadPoolExecutor(self.threads) as pool, ExitStack() as cleanup:
            running: tuple[Sequence[T], Iterator[Result]] | None = None
            for batch in batches:
                previous, running = running, (batch, _start(do, batch, pool, self.threads, cleanup))
                if previous is not None:
                    yield previous[0], _collect(*previous, on_result)
            if running is not None:
                yield running[0], _collect(*running, on_result)


def _collect(
    batch: Sequence[T], results: Iterable[Result], on_result: Callable[[T, Result], None]
) -> list[Result]:
    collected: list[Result] = []
    for item, result in zip(batch, results, strict=True):
        on_result(item, result)
        collected.append(result)
    return collected


def _start(
    do: Callable[[T], Result],
    items: Sequence[T],
    pool: ThreadPoolExecutor,
    threads: int,
    cleanup: ExitStack,
) -> Iterator[Result]:
    """Start the work on the pool's threads. `cleanup` drops the items that no thread has started by then."""
    work = _Work(do, items)
    cleanup.callback(work.end)
    for _ in range(min(threads, len(items))):
        pool.submit(work.run)
    return work.results()


class _Work(Generic[T, Result]):
    """A queue of items that threads take one after the other."""

    def __init__(self, do: Callable[[T], Result], items: Sequence[T]) -> None:
        self._do = do
        self._parts = [
            _Part[T, Result](items[at : at + RESULTS_AT_ONCE])
            for at in range(0, len(items), RESULTS_AT_ONCE)
        ]
        self._left = ((part, place) for part in self._parts for place in range(len(part.items)))
        self._lock = threading.Lock()

    def run(self) -> None:
        """Process items until none is left. Each thread runs this."""
        while (item := self._next_item()) is not None:
            part, place = item
            part.do(self._do, place)

    def results(self) -> Iterator[Result]:
        for part in self._parts:
            yield from part.future.result()

    def end(self) -> None:
        """Drop the items that no thread has started."""
        with self._lock:
            self._left = iter(())

    def _next_item(self) -> tuple[_Part[T, Result], int] | None:
        with self._lock:
            return next(self._left, None)


class _Part(Generic[T, Result]):
    """A group of neighbouring items. Its future receives all results once they are complete, or a
    failure at once."""

    def __init__(self, items: Sequence[T]) -> None:
        self.items = items
        self.future: Future[list[Result]] = Future()
        self._results: dict[int, Result] = {}

    def do(self, do: Callable[[T], Result], place: int) -> None:
        try:
            self._results[place] = do(self.items[place])
        except BaseException as error:
            with suppress(InvalidStateError):  # another item's failure is set already
                self.future.set_exception(error)
                raise
        if len(self._results) == len(self.items):
            with suppress(InvalidStateError):  # another thread was faster
                self.future.set_result([self._results[place] for place in range(len(self.items))])
