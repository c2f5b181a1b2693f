from __future__ import annotations

import threading
from contextlib import closing

import pytest

from workspaces.sync.thread_pool import RESULTS_AT_ONCE, ThreadPool

WAIT_S_MAX = 60.0


@pytest.mark.parametrize("threads", [1, 4])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    pool = ThreadPool(threads)
    assert list(pool.map(lambda n: n * n, range(50))) == [n * n for n in range(50)]
    batches = [list(range(7)), [], list(range(7, 20))]
    found = list(pool.map_batches(lambda n: n * n, batches))
    assert found == [(batch, [n * n for n in batch]) for batch in batches]


def test_the_next_batch_is_on_its_way_while_one_is_dealt_with() -> None:
    begun = threading.Event()

    def do(number: int) -> int:
        if number == 2:
            begun.set()
        return number

    with closing(ThreadPool(2).map_batches(do, [[1], [2]])) as batches:
        next(batches)
        assert begun.wait(WAIT_S_MAX)


def test_no_more_than_one_batch_is_on_its_way() -> None:
    met: list[int] = []

    def do(number: int) -> int:
        met.append(number)
        return number

    with closing(ThreadPool(2).map_batches(do, [[1], [2], [3], [4]])) as batches:
        next(batches)
    assert set(met) <= {1, 2}


def test_what_was_not_begun_is_left_when_nobody_goes_on() -> None:
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
def test_a_failure_is_the_callers(threads: int) -> None:
    def do(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(ThreadPool(threads).map_batches(do, [[1, 2], [3]]))


def test_results_come_while_later_items_are_on_their_way() -> None:
    may_end = threading.Event()

    def do(number: int) -> int:
        if number >= RESULTS_AT_ONCE:
            assert may_end.wait(WAIT_S_MAX)
        return number

    results = ThreadPool(3).map(do, range(3 * RESULTS_AT_ONCE))
    assert [next(results) for _ in range(RESULTS_AT_ONCE)] == list(range(RESULTS_AT_ONCE))
    may_end.set()
    assert list(results) == list(range(RESULTS_AT_ONCE, 3 * RESULTS_AT_ONCE))


def test_one_that_takes_long_keeps_none_of_the_others_waiting() -> None:
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
def test_after_a_failure_nothing_more_is_begun(threads: int) -> None:
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
