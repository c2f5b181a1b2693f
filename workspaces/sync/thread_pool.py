"""Many requests, several in flight at the same time.

Each thread takes the next item as soon as it is done with one, and the caller hears of results several at a
time: where every item and every result is handed over by itself, that takes threads nearly as long as a
request to a store on the same machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

THREADS = 32
"""Requests in flight: more does not make a store on one machine faster, and hides 50 ms of distance."""

TOLD_AT_ONCE = 32
"""Neighbours whose results come together."""

T = TypeVar("T")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ThreadPool:
    threads: int = THREADS
    """1: everything happens in the caller's thread, in order."""

    def all(self, do: Callable[[T], Result], items: Sequence[T]) -> Iterator[Result]:
        """The results in the order of the items."""
        threads = min(self.threads, len(items))
        if threads <= 1:
            yield from map(do, items)
            return
        with ThreadPoolExecutor(threads) as pool, ExitStack() as ends:
            yield from _begun(do, items, pool, threads, ends)

    def ahead(
        self,
        do: Callable[[T], Result],
        batches: Iterable[Sequence[T]],
        come: Callable[[T, Result], None] = lambda _item, _result: None,
    ) -> Generator[tuple[Sequence[T], list[Result]]]:
        """Batch after batch with its results; while one is dealt with, the next is on its way. `come` is
        told of each result as it comes. Close it where it is not gone through to the end."""
        if self.threads <= 1:
            for batch in batches:
                yield batch, _told(batch, map(do, batch), come)
            return
        with ThreadPoolExecutor(self.threads) as pool, ExitStack() as ends:
            coming: tuple[Sequence[T], Iterator[Result]] | None = None
            for batch in batches:
                before, coming = coming, (batch, _begun(do, batch, pool, self.threads, ends))
                if before is not None:
                    yield before[0], _told(*before, come)
            if coming is not None:
                yield coming[0], _told(*coming, come)


def _told(
    batch: Sequence[T], results: Iterable[Result], come: Callable[[T, Result], None]
) -> list[Result]:
    found: list[Result] = []
    for item, result in zip(batch, results, strict=True):
        come(item, result)
        found.append(result)
    return found


def _begun(
    do: Callable[[T], Result],
    items: Sequence[T],
    pool: ThreadPoolExecutor,
    threads: int,
    ends: ExitStack,
) -> Iterator[Result]:
    """On their way from now on, as far as they have begun when `ends` comes."""
    work = _Work(do, items)
    ends.callback(work.end)
    for _ in range(min(threads, len(items))):
        pool.submit(work.go_on)
    return work.results()


class _Work(Generic[T, Result]):
    """Items that threads take one after the other."""

    def __init__(self, do: Callable[[T], Result], items: Sequence[T]) -> None:
        self._do = do
        self._parts = [
            _Part[T, Result](items[at : at + TOLD_AT_ONCE])
            for at in range(0, len(items), TOLD_AT_ONCE)
        ]
        self._left = ((part, place) for part in self._parts for place in range(len(part.items)))
        self._lock = threading.Lock()

    def go_on(self) -> None:
        """What each of the threads does."""
        while (taken := self._taken()) is not None:
            part, place = taken
            part.do(self._do, place)

    def results(self) -> Iterator[Result]:
        for part in self._parts:
            yield from part.told.result()

    def end(self) -> None:
        """What was not begun is left."""
        with self._lock:
            self._left = iter(())

    def _taken(self) -> tuple[_Part[T, Result], int] | None:
        with self._lock:
            return next(self._left, None)


class _Part(Generic[T, Result]):
    """Neighbours. Their results are told when all are there, or a failure when there is one."""

    def __init__(self, items: Sequence[T]) -> None:
        self.items = items
        self.told: Future[list[Result]] = Future()
        self._results: dict[int, Result] = {}

    def do(self, do: Callable[[T], Result], place: int) -> None:
        try:
            self._results[place] = do(self.items[place])
        except BaseException as error:
            with suppress(InvalidStateError):  # another's failure has been told
                self.told.set_exception(error)
                raise
        if len(self._results) == len(self.items):
            with suppress(InvalidStateError):  # by another, in the same moment
                self.told.set_result([self._results[place] for place in range(len(self.items))])
