"""The fair share: how many threads the calls of one account may take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.runtime.async_bridge import run_in_thread
from harness.runtime.fair_share import SOON_MAX, current_share, take_share_of
from workspaces.coordination.writer_lock import WriterLock
from workspaces.errors import WorkspaceBusy

WAIT_S = 30.0


class Writers:
    """Calls that want a lock which the test holds."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.written: list[int] = []
        self._begun = threading.Semaphore(0)

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        with WriterLock(self.file).hold("the test", wait_s=0):
            yield

    def write(self, number: int) -> None:
        self._begun.release()
        with WriterLock(self.file).hold("a writer", wait_s=WAIT_S):
            self.written.append(number)

    def start(self, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(run_in_thread(self.write, number)) for number in range(count)]

    async def have_begun(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._begun.acquire, timeout=WAIT_S)


@pytest.fixture
def writers(tmp_path: Path) -> Writers:
    return Writers(tmp_path / "w.lock")


async def within_time(call: Callable[[], None]) -> None:
    async with asyncio.timeout(WAIT_S):
        await run_in_thread(call)


async def of(account_id: str, call: Callable[[], None]) -> None:
    take_share_of(account_id)
    await within_time(call)


def test_calls_of_one_account_take_no_thread_share_of_another_account() -> None:
    release = threading.Event()

    async def go() -> None:
        taken = [
            asyncio.create_task(of("busy", lambda: assert_set(release)))
            for _ in range(2 * SOON_MAX)
        ]
        try:
            await asyncio.create_task(of("other", lambda: None))
            await within_time(lambda: None)  # nor of those that belong to no account
            assert not any(one.done() for one in taken)
        finally:
            release.set()
            await asyncio.gather(*taken)

    asyncio.run(go())


def assert_set(event: threading.Event) -> None:
    assert event.wait(WAIT_S)


def test_a_call_that_waits_for_the_writer_lock_takes_no_place_of_its_account(
    writers: Writers,
) -> None:
    count = 4 * SOON_MAX

    async def go() -> None:
        with writers.kept_out():
            waiting = writers.start(count)
            await writers.have_begun(count)
            await within_time(lambda: None)
        await asyncio.gather(*waiting)

    asyncio.run(go())
    assert sorted(writers.written) == list(range(count))


def test_calls_over_the_waiting_limit_are_refused_and_the_waiting_calls_complete(
    writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.runtime.fair_share.WAITING_MAX", 5)

    async def go() -> list[BaseException | None]:
        with writers.kept_out():
            waiting = writers.start(5)
            await writers.have_begun(5)
            await until_waiting(5)
            for _ in range(3):
                with pytest.raises(WorkspaceBusy, match="the test"):
                    async with asyncio.timeout(WAIT_S / 2):
                        await run_in_thread(writers.write, 9)
            assert not any(one.done() for one in waiting)
        found = await asyncio.gather(*waiting, return_exceptions=True)
        await run_in_thread(writers.write, 5)  # whoever waited is counted no more
        with writers.kept_out():
            again = asyncio.create_task(run_in_thread(writers.write, 6))
            await writers.have_begun(5)
        await again
        return found

    assert asyncio.run(go()) == [None] * 5
    assert sorted(writers.written) == list(range(7))


async def until_waiting(count: int) -> None:
    """Wait until so many calls are counted as waiting."""
    share = current_share()
    async with asyncio.timeout(WAIT_S):
        while share.waiting < count:  # noqa: ASYNC110 - threads count themselves
            await asyncio.sleep(0.001)


def test_a_cancelled_waiting_call_returns_its_place_once_and_holds_no_lock(
    writers: Writers,
) -> None:
    count = 4 * SOON_MAX
    release = threading.Event()

    async def go() -> None:
        share = current_share()
        with writers.kept_out():
            waiting = writers.start(count)
            await writers.have_begun(count)
            for one in waiting:
                one.cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        with WriterLock(writers.file).hold("the test", wait_s=WAIT_S):
            pass
        full = [asyncio.create_task(run_in_thread(assert_set, release)) for _ in range(SOON_MAX)]
        await asyncio.sleep(0)
        try:
            assert share.places.locked(), "there are more places than before"
        finally:
            release.set()
        await asyncio.gather(*full)

    asyncio.run(go())
