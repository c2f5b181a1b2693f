"""Work under a lease or a claim: renewed while it runs and stopped before the lease expires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from harness.bootstrap.doctor import examine
from harness.jobs.heartbeat import kept_alive
from harness.jobs.job import ATTEMPTS_MAX, Job
from harness.runtime.async_bridge import run_or_undo, run_shielded
from workspaces.coordination.lease import LeaseTimings
from workspaces.errors import LeaseLost, Unavailable

WAIT_S = 60.0
OFTEN = LeaseTimings(lease_s=WAIT_S, renew_s=0.02, stop_early_s=0.1)
SHORT = LeaseTimings(lease_s=0.5, renew_s=0.02, stop_early_s=0.1)


async def kept(renew: Callable[[], None], terms: LeaseTimings = OFTEN) -> None:
    async with asyncio.timeout(WAIT_S), kept_alive(renew, terms, "key"):
        await asyncio.Event().wait()


def test_work_under_a_lease_lost_to_another_holder_is_stopped() -> None:
    def renew() -> None:
        raise LeaseLost("key")

    with pytest.raises(LeaseLost):
        asyncio.run(kept(renew))


def test_work_is_stopped_before_its_unrenewed_lease_expires() -> None:
    """And it is tried again while there is time: a minute of it is over after the third time."""
    tries: list[None] = []
    loop = asyncio.new_event_loop()
    time = loop.time

    def renew() -> None:
        tries.append(None)
        if len(tries) == 3:
            loop.time = lambda: time() + OFTEN.lease_s  # type: ignore[method-assign]
        raise Unavailable("store", "is away")

    async def live() -> None:
        async with asyncio.timeout(3 * WAIT_S), kept_alive(renew, OFTEN, "key"):
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(live())
    assert len(tries) == 3


def test_work_is_stopped_if_the_renewal_hangs() -> None:
    over = threading.Event()

    async def live() -> None:
        with pytest.raises(LeaseLost):
            await kept(lambda: over.wait(WAIT_S) and None, SHORT)
        over.set()

    asyncio.run(live())


def test_a_process_that_slept_past_its_lease_does_not_renew() -> None:
    renewed: list[None] = []
    terms = LeaseTimings(lease_s=0.2, renew_s=0.5, stop_early_s=0.1)
    with pytest.raises(LeaseLost):
        asyncio.run(kept(lambda: renewed.append(None), terms))
    assert renewed == []


def test_renewal_ends_with_the_work() -> None:
    renewed: list[None] = []

    async def live() -> int:
        async with asyncio.timeout(WAIT_S):
            async with kept_alive(lambda: renewed.append(None), OFTEN, "key"):
                while not renewed:  # noqa: ASYNC110 - told by a thread
                    await asyncio.sleep(0.01)
            count = len(renewed)
            assert len(asyncio.all_tasks()) <= 2
            await asyncio.sleep(5 * OFTEN.renew_s)
        return len(renewed) - count

    assert asyncio.run(live()) == 0


def test_a_cancellation_from_outside_is_raised_unchanged() -> None:
    async def live() -> None:
        renewed = asyncio.Event()
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(kept(lambda: loop.call_soon_threadsafe(renewed.set) and None))
        await renewed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(live())


@pytest.mark.parametrize("is_undone", [True, False])
def test_a_cancelled_thread_call_completes_first_and_is_undone_on_request(is_undone: bool) -> None:
    begun, go, taken, undone = threading.Event(), threading.Event(), list[str](), list[str]()

    def take() -> str:
        begun.set()
        assert go.wait(WAIT_S)
        taken.append("it")
        return "it"

    async def live() -> None:
        taking = run_or_undo(take, undone.append) if is_undone else run_shielded(take)
        task = asyncio.create_task(taking)  # type: ignore[arg-type]
        await asyncio.to_thread(begun.wait, WAIT_S)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, go.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert taken == ["it"]
        assert undone == (["it"] if is_undone else [])

    asyncio.run(live())


def test_the_doctor_reports_overdue_jobs_and_jobs_set_aside(home: Path) -> None:
    with Harness.open(home) as harness:
        long_ago = harness.rooms.clock.now().replace(year=2020)
        harness.jobs.enqueue(Job("a", "tidy", long_ago))
        (overdue,) = (one for one in examine(home) if one.check == "jobs")
        assert (overdue.state, overdue.detail) == ("note", "1 of 1 are overdue")
        for _ in range(ATTEMPTS_MAX):
            claimed = harness.jobs.claim(frozenset({"tidy"}))
            assert claimed is not None
            harness.jobs.failed(claimed, "it rains")
            harness.jobs.enqueue(Job("a", "tidy", long_ago))
        (aside,) = (one for one in examine(home) if one.check == "jobs")
        assert (aside.state, aside.detail) == ("note", "set aside: a")
