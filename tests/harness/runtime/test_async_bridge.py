"""The bridge between async and sync code: contexts are left and threads released, also on cancellation."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from harness.jobs.heartbeat import kept_alive
from harness.runtime.async_bridge import (
    _THREADS,
    _Threads,
    completed,
    entered,
    run_in_new_thread,
    run_in_thread,
)
from harness.runtime.fair_share import _SHARES, SOON_MAX
from workspaces.coordination.lease import LeaseTimings

WAIT_S = 30.0


class Door:
    """A context whose steps a test can hold up."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.may_enter = threading.Event()
        self.may_leave = threading.Event()
        self.arrived = threading.Event()

    @contextmanager
    def passed(self) -> Generator[str]:
        self.arrived.set()
        self.may_enter.wait(30)
        self.said.append("entered")
        try:
            yield "inside"
        except BaseException as error:
            self.said.append(type(error).__name__)
            raise
        finally:
            self.may_leave.wait(30)
            self.said.append("left")


async def until(event: threading.Event) -> None:
    await asyncio.to_thread(event.wait, 30)


def test_a_sync_context_is_entered_and_left_from_async_code() -> None:
    door = Door()
    door.may_enter.set()
    door.may_leave.set()

    async def go() -> None:
        async with entered(door.passed()) as inside:
            assert inside == "inside"
            assert door.said == ["entered"]

    asyncio.run(go())
    assert door.said == ["entered", "left"]


def test_an_exception_in_the_body_reaches_the_sync_context() -> None:
    door = Door()
    door.may_enter.set()
    door.may_leave.set()

    async def go() -> None:
        async with entered(door.passed()):
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(go())
    assert door.said == ["entered", "ValueError", "left"]


def test_a_context_cancelled_while_entering_is_left() -> None:
    door = Door()
    door.may_leave.set()

    async def inner() -> None:
        async with entered(door.passed()):
            pytest.fail("nobody comes in here")

    async def go() -> None:
        task = asyncio.create_task(inner())
        await until(door.arrived)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        door.may_enter.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert door.said == ["entered", "left"]


def test_a_context_cancelled_twice_while_leaving_is_still_left() -> None:
    door = Door()
    door.may_enter.set()

    async def inner() -> None:
        async with entered(door.passed()):
            await asyncio.sleep(30)

    async def go() -> None:
        task = asyncio.create_task(inner())
        await until(door.arrived)
        while not door.said:  # noqa: ASYNC110 - a thread says it
            await asyncio.sleep(0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        door.may_leave.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert door.said[0] == "entered"
    assert door.said[-1] == "left"


def test_a_context_that_fails_to_enter_raises_its_error() -> None:
    @contextmanager
    def closed() -> Generator[None]:
        raise PermissionError
        yield

    async def go() -> None:
        async with entered(closed()):
            pytest.fail("nobody comes in here")

    with pytest.raises(PermissionError):
        asyncio.run(go())


def test_a_cancelled_call_completes_its_work_before_raising() -> None:
    done: list[str] = []

    async def work() -> str:
        await asyncio.sleep(0.01)
        done.append("done")
        return "result"

    async def go() -> None:
        assert await completed(work()) == "result"
        task = asyncio.create_task(completed(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert done == ["done", "done"]


def test_a_lock_holder_can_release_the_lock_while_more_callers_wait_than_there_are_threads() -> (
    None
):
    """More of them than a loop has threads."""
    lock = threading.Lock()

    @contextmanager
    def locked() -> Iterator[None]:
        if not lock.acquire(timeout=WAIT_S):
            raise TimeoutError
        try:
            yield
        finally:
            lock.release()

    async def one() -> None:
        async with entered(locked()):
            await asyncio.sleep(0)

    async def all_at_once() -> None:
        await asyncio.gather(*(one() for _ in range(64)))

    asyncio.run(all_at_once())


def test_a_lease_is_renewed_while_all_threads_are_taken() -> None:
    release, renewed = threading.Event(), threading.Event()
    terms = LeaseTimings(lease_s=WAIT_S, renew_s=0.01, stop_early_s=0.0)

    async def go() -> None:
        taken = [asyncio.create_task(run_in_thread(release.wait, WAIT_S)) for _ in range(64)]
        await asyncio.sleep(0)
        try:
            async with kept_alive(renewed.set, terms, "c1"):
                assert await run_in_new_thread(renewed.wait, WAIT_S / 2)
        finally:
            release.set()
            await asyncio.gather(*taken)

    asyncio.run(go())


def test_run_in_new_thread_reuses_an_idle_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.runtime.async_bridge._THREADS", _Threads())
    monkeypatch.setattr("harness.runtime.async_bridge.IDLE_S_MAX", WAIT_S)
    at_once = 12
    together = threading.Barrier(at_once)

    def meet() -> threading.Thread:
        together.wait(WAIT_S)
        return threading.current_thread()

    async def go() -> set[threading.Thread]:
        met = await asyncio.gather(*(run_in_new_thread(meet) for _ in range(at_once)))
        assert len(set(met)) == at_once
        alone = [await run_in_new_thread(threading.current_thread) for _ in range(100)]
        assert set(alone) <= set(met), "a thread was started although others had nothing to do"
        monkeypatch.setattr("harness.runtime.async_bridge.IDLE_S_MAX", 0.01)
        last = await asyncio.gather(*(run_in_new_thread(meet) for _ in range(at_once)))
        return {*met, *last}

    for thread in asyncio.run(go()):
        thread.join(WAIT_S)
        assert not thread.is_alive(), "it waits for ever"


def test_an_idle_thread_keeps_no_reference_to_its_last_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Large: ...

    monkeypatch.setattr("harness.runtime.async_bridge._THREADS", threads := _Threads())

    async def go() -> list[weakref.ref[Large]]:
        given, made = Large(), await run_in_new_thread(Large)
        await run_in_new_thread(repr, given)
        async with asyncio.timeout(WAIT_S):
            while not threads._idle:  # noqa: ASYNC110 - a thread says it
                await asyncio.sleep(0)
        return [weakref.ref(given), weakref.ref(made)]

    kept = asyncio.run(go())
    gc.collect()
    assert [one() for one in kept] == [None, None]


def test_an_event_loop_runs_a_bounded_number_of_short_calls_and_a_closed_loop_is_forgotten() -> (
    None
):
    begun: list[int] = []
    most: list[int] = []
    pairs = threading.Barrier(2)

    def work() -> None:
        begun.append(1)
        most.append(len(begun))
        pairs.wait(WAIT_S)
        begun.pop()

    async def go() -> None:
        await asyncio.gather(*(run_in_thread(work) for _ in range(10 * SOON_MAX)))

    for _ in range(3):
        asyncio.run(go())
        assert sum(loop.is_closed() for loop in _SHARES) == 1
    assert 1 < max(most) <= SOON_MAX


def test_a_forked_child_starts_its_own_threads() -> None:
    async def go() -> int:
        return await run_in_new_thread(os.getpid)

    async def idle() -> None:
        assert await go() == os.getpid()
        async with asyncio.timeout(WAIT_S):
            while not _THREADS._idle:  # noqa: ASYNC110 - a thread says it
                await asyncio.sleep(0)

    asyncio.run(idle())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(asyncio.run(asyncio.wait_for(go(), WAIT_S)) != os.getpid())
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_run_in_new_thread_runs_more_blocking_calls_than_the_pool_and_raises_their_errors() -> None:
    """More of it than a loop has threads; what it raises is raised where it is waited for."""
    count = 64
    met = threading.Barrier(count)

    async def all_at_once() -> list[int]:
        calls = (run_in_new_thread(met.wait, WAIT_S) for _ in range(count))
        return await asyncio.gather(*calls)

    assert sorted(asyncio.run(all_at_once())) == list(range(count))

    def broken() -> None:
        raise LookupError("nothing")

    with pytest.raises(LookupError):
        asyncio.run(run_in_new_thread(broken))

    def at_an_end() -> None:
        raise StopIteration

    async def in_time() -> None:
        async with asyncio.timeout(WAIT_S):
            await run_in_new_thread(at_an_end)

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(in_time())
