"""The thread pool of sync: order of results, batches in flight, failures."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from workspaces.sync.thread_pool import RESULTS_AT_ONCE, ThreadPool

WAIT_S_MAX = 60.0


@pytest.mark.parametrize("threads", [1, 4])
def test_thread_pool_results_come_in_the_order_of_the_items(threads: int) -> None:
    pool = ThreadPool(threads)
    assert list(pool.map(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    batches = [list(range(7)), [], list(range(7, 20))]
    found = list(pool.map_batches(lambda n: n * n, batches))
    assert found == [(batch, [n * n for n in batch]) for batch in batches]


def test_the_thread_pool_starts_the_next_batch_while_the_caller_handles_a_batch() -> None:
    begun = threading.Event()

    def do(number: int) -> int:
        if number == 2:
            begun.set()
        return number

    with closing(ThreadPool(2).map_batches(do, [[1], [2]])) as batches:
        next(batches)
        assert begun.wait(WAIT_S_MAX)


def test_the_thread_pool_runs_at_most_a_single_batch_ahead() -> None:
    met: list[int] = []

    def do(number: int) -> int:
        met.append(number)
        return number

    with closing(ThreadPool(2).map_batches(do, [[1], [2], [3], [4]])) as batches:
        next(batches)
    assert set(met) <= {1, 2}


def test_closing_the_batches_of_a_thread_pool_drops_items_that_have_not_started() -> None:
    met: list[int] = []
    may_end, begun = threading.Semaphore(0), threading.Semaphore(0)

    def do(number: int) -> int:
        met.append(number)
        if number >= 100:
            begun.release()
            assert may_end.acquire(timeout=WAIT_S_MAX)
        return number

    count = 10_000
    batches = ThreadPool(2).map_batches(do, [[1], list(range(100, 100 + count))])
    next(batches)
    assert begun.acquire(timeout=WAIT_S_MAX) and begun.acquire(timeout=WAIT_S_MAX)
    closer = threading.Thread(target=batches.close)
    closer.start()
    while closer.is_alive():
        may_end.release()
        closer.join(0.05)
    assert len(met) < count


@pytest.mark.parametrize("threads", [1, 4])
def test_an_exception_in_a_thread_of_the_pool_is_raised_in_the_caller(threads: int) -> None:
    def do(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(ThreadPool(threads).map_batches(do, [[1, 2], [3]]))


def test_the_thread_pool_yields_results_while_later_items_still_run() -> None:
    may_end = threading.Event()

    def do(number: int) -> int:
        if number >= RESULTS_AT_ONCE:
            assert may_end.wait(WAIT_S_MAX)
        return number

    results = ThreadPool(3).map(do, range(3 * RESULTS_AT_ONCE))
    assert [next(results) for _ in range(RESULTS_AT_ONCE)] == list(range(RESULTS_AT_ONCE))
    may_end.set()
    assert list(results) == list(range(RESULTS_AT_ONCE, 3 * RESULTS_AT_ONCE))


def test_a_slow_item_of_the_thread_pool_does_not_block_the_other_items() -> None:
    others = threading.Semaphore(0)
    count = 5 * RESULTS_AT_ONCE

    def do(number: int) -> int:
        if number > 0:
            others.release()
            return number
        assert all(others.acquire(timeout=WAIT_S_MAX) for _ in range(count - 1))
        return number

    assert list(ThreadPool(2).map(do, range(count))) == list(range(count))


@pytest.mark.parametrize("threads", [1, 4])
def test_the_thread_pool_starts_no_item_after_a_failure(threads: int) -> None:
    met: list[int] = []
    never = threading.Event()

    def do(number: int) -> int:
        met.append(number)
        if number == 0:
            raise ValueError("nought")
        never.wait(0.001)  # all of them would take longer than the failure takes to be heard of
        return number

    with pytest.raises(ValueError, match="nought"):
        list(ThreadPool(threads).map(do, range(100_000)))
    assert len(met) < 100_000
