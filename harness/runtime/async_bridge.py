"""The two bridges between the rooms: async code calling the synchronous one, and back.

Stores, files and git are synchronous and may block; turns are async. `run_in_thread` is the one way down. A
loop makes few such calls at once for each account (`share`), so they must be over soon. A call that finds a
lock taken gives its place back while it waits. What runs for long, or waits for a network, goes in a thread
of its own (`run_in_new_thread`), which is counted nowhere.

A thread that has something for the loop it works for hands it up (`handing_up`), and does not wait for it.

`LoopThread` is the one way up, for callers without an event loop of their own: the library and the
command line. It owns a thread that lives as long as the harness, because a sandbox dies with the
thread that started it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar, cast

from harness.runtime.fair_share import ThreadSlot, current_share
from workspaces.coordination.wait_hook import when_waiting
from workspaces.errors import Failure

T = TypeVar("T")
P = ParamSpec("P")

Work = Callable[[], None]
HandUp = Callable[[Work], None]
ForGood = Callable[[], None]

IDLE_S_MAX = 5.0
"""For how long a thread waits for more to do."""

STOP_S_MAX = 10.0
"""How long an interrupted turn may take to leave things in order."""


class GivenUp(Exception):
    """In a thread for which nobody waits any more, and which has done nothing yet that lasts."""


async def run_in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """For what is over soon, or waits for locks alone: it takes a place of its account's share. asyncio's own
    executor gives the work to whichever thread has rested longest, which takes twice as long."""
    async with ThreadSlot(current_share()) as place:

        def work() -> T:
            when_waiting(place.waiting)
            return call(*args, **kwargs)

        return await _begun(work)


async def run_in_new_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """For what waits for others, and for code that is not ours and may take as long as it likes: it keeps
    nobody from a thread, and no process from ending."""
    return await _begun(call, *args, **kwargs)


def _begun(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """At once, before the loop does anything else."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():  # nobody waits any more
            return
        if isinstance(error, StopIteration):  # which a future does not take: it would never be done
            told = RuntimeError("it raised StopIteration")
            told.__cause__ = error
            ended.set_exception(told)
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(call, *args, **kwargs)
        except BaseException as problem:  # noqa: BLE001 - raised where it is waited for
            error = problem
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    _THREADS.run(run)
    return ended


def handing_up() -> HandUp:
    """For a thread: what it is handed the running loop calls, soon, or never when it has ended."""
    loop = asyncio.get_running_loop()

    def hand_up(work: Work) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(work)

    return hand_up


class _Threads:
    """As many as there is work for. One that is done waits a moment for more: to start a thread is to wait
    until it runs, and a loop that begins many turns at once would do little else."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []
        """Taking and adding are atomic: no lock, which a fork could leave held for ever."""
        os.register_at_fork(after_in_child=self._idle.clear)

    def run(self, work: Work) -> None:
        try:
            given = self._idle.pop()
        except IndexError:
            given = SimpleQueue[Work]()
            threading.Thread(
                target=self._live, args=(given,), name="harness-tool", daemon=True
            ).start()
        given.put(work)

    def _live(self, given: SimpleQueue[Work]) -> None:
        while True:
            try:
                work = given.get(timeout=IDLE_S_MAX)
            except Empty:
                try:
                    self._idle.remove(given)
                except ValueError:  # somebody has just taken it
                    work = given.get()
                else:
                    return
            work()
            del work  # and what came of it
            self._idle.append(given)


_THREADS = _Threads()


async def completed(work: Awaitable[T]) -> T:
    """Wait for what must not be left half done: a cancellation meanwhile is raised afterwards."""
    task = asyncio.ensure_future(work)
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
    if was_cancelled:
        _ = task.cancelled() or task.exception()  # looked at, so that nobody warns of it
        raise asyncio.CancelledError
    return task.result()


@asynccontextmanager
async def entered(context: AbstractContextManager[T]) -> AsyncGenerator[T]:
    """A synchronous context, entered and left in threads, and left whatever happens: also when the
    caller was cancelled while it was being entered."""
    entering = _begun(context.__enter__)
    try:
        value = await completed(entering)
    except asyncio.CancelledError:
        if not entering.cancelled() and entering.exception() is None:
            await completed(run_in_new_thread(context.__exit__, None, None, None))
        raise
    try:
        yield value
    except BaseException as error:
        if not await completed(
            run_in_new_thread(context.__exit__, type(error), error, error.__traceback__)
        ):
            raise
    else:
        await completed(run_in_new_thread(context.__exit__, None, None, None))


async def run_shielded(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """For what must not be left under way: a cancellation waits until it is known what became of it."""
    return await completed(run_in_thread(call, *args, **kwargs))


async def run_or_undo(call: Callable[[], T], undo: Callable[[T], None]) -> T:
    """For what must not stay taken by nobody: cancelled meanwhile, it is undone once it is done."""
    running = asyncio.ensure_future(run_in_thread(call))
    try:
        return await completed(running)
    except asyncio.CancelledError:
        await _undone(running, undo)
        raise


async def run_or_abandon(call: Callable[[ForGood], T], undo: Callable[[T], None]) -> T:
    """The same for what waits for others first, in a thread of its own: `call` is handed what it calls before
    it does anything that lasts. Cancelled sooner, nobody waits for it: then it is told so, by GivenUp."""
    point = _PointOfNoReturn()
    running = _begun(call, point.passed)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if point.closed():
            running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        else:
            await _undone(running, undo)
        raise


async def _undone(running: asyncio.Future[T], undo: Callable[[T], None]) -> None:
    async def undone() -> None:
        await asyncio.wait({running})
        if not running.cancelled() and running.exception() is None:
            with suppress(Failure):  # it ends by itself, later
                await run_in_thread(undo, running.result())

    with suppress(asyncio.CancelledError):
        await completed(undone())


class _PointOfNoReturn:
    """Between a thread and whoever waits for it: the one passes it, or the other closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_passed = self._is_closed = False

    def passed(self) -> None:
        with self._lock:
            if self._is_closed:
                raise GivenUp
            self._is_passed = True

    def closed(self) -> bool:
        """Whether it could be."""
        with self._lock:
            self._is_closed = not self._is_passed
            return self._is_closed


class UnderWay(Generic[T]):
    """A coroutine on a loop's thread, as other threads see it."""

    def __init__(self, future: Future[T], ended: threading.Event) -> None:
        self._future = future
        self._ended = ended

    def result(self) -> T:
        """Wait for it."""
        return self._future.result()

    def then(self, call: Callable[[], None]) -> None:
        """Once it has ended, however."""
        self._future.add_done_callback(lambda _: call())

    def stop(self) -> None:
        """Cancel it and wait for its end: the future is done at once, the coroutine behind it is not."""
        if not self._future.done():
            self._future.cancel()
            self._ended.wait(STOP_S_MAX)


class LoopThread:
    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine's result; an interruption cancels it and waits for its end."""
        under_way = self.start(coroutine)
        try:
            return under_way.result()
        except BaseException:
            under_way.stop()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> UnderWay[T]:
        ended = threading.Event()

        async def watched() -> T:
            try:
                return await coroutine
            finally:
                ended.set()

        return UnderWay(asyncio.run_coroutine_threadsafe(watched(), self._started()), ended)

    def close(self) -> None:
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            ending = asyncio.run_coroutine_threadsafe(_end_tasks(), loop)
            with suppress(TimeoutError):
                ending.result(STOP_S_MAX)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_S_MAX)
            if not thread.is_alive():
                loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_until_stopped, args=(self._loop,), name="harness-loop", daemon=True
                )
                self._thread.start()
            return self._loop


async def _end_tasks() -> None:
    """As `asyncio.run` does at its end: what still runs may leave things in order."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """A coroutine that raises SystemExit or KeyboardInterrupt stops the loop under its callers, who
    would then wait for ever: it is their answer, and no reason for the loop to end."""
    while True:
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            continue
        return
