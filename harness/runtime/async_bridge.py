"""The two bridges between async and synchronous code.

Stores, files and git are synchronous and may block; turns are async. `run_in_thread` is the one way from
async to synchronous code. A loop runs few such calls at once for each account (`fair_share`), so they must be
short. A call that waits for a lock gives its place back meanwhile. A call that runs long, or waits for a
network, goes into a thread of its own (`run_in_new_thread`), which counts against no share.

`LoopThread` is the one way from synchronous to async code, for callers without an event loop: the library and
the command line. It owns a thread that lives as long as the harness, because a sandbox dies with the thread
that started it.
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

IDLE_S_MAX = 5.0
"""Seconds an idle thread waits for more work."""

STOP_S_MAX = 10.0
"""Seconds an interrupted turn may take to clean up."""


async def run_in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a short call in a thread of the account's share, and return its result.

    The call must end soon, or wait for locks only. asyncio's own executor gives the work to the thread that
    has been idle longest, which takes twice as long.
    """
    async with ThreadSlot(current_share()) as place:

        def work() -> T:
            when_waiting(place.waiting)
            return call(*args, **kwargs)

        return await _start(work)


async def run_in_new_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call in a thread that counts against no share, and return its result.

    For calls that wait for other machines or processes, and for foreign code that may take as long as it
    likes. The thread keeps no other call from a thread, and no process from ending.
    """
    return await _start(call, *args, **kwargs)


def _start(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Start a call in a thread at once, before the loop does anything else. Return its future."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if ended.done():  # the caller was cancelled
            return
        if isinstance(error, StopIteration):  # a future refuses it, and would never be done
            failure = RuntimeError("the call raised StopIteration")
            failure.__cause__ = error
            ended.set_exception(failure)
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(call, *args, **kwargs)
        except BaseException as problem:  # noqa: BLE001 - raised in the caller
            error = problem
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_result, result, error)

    _THREADS.run(run)
    return ended


class _Threads:
    """A pool with as many threads as there is work for.

    A thread that is done waits a moment for more work. Starting a thread means waiting until it runs, and a
    loop that starts many turns at once would do little else.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Work]] = []
        """The queues of idle threads. Taking and adding are atomic, so no lock is needed; a fork could
        leave a lock held for ever."""
        os.register_at_fork(after_in_child=self._idle.clear)

    def run(self, work: Work) -> None:
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = SimpleQueue[Work]()
            threading.Thread(
                target=self._live, args=(queue,), name="harness-tool", daemon=True
            ).start()
        queue.put(work)

    def _live(self, queue: SimpleQueue[Work]) -> None:
        while True:
            try:
                work = queue.get(timeout=IDLE_S_MAX)
            except Empty:
                try:
                    self._idle.remove(queue)
                except ValueError:  # another thread has just taken it
                    work = queue.get()
                else:
                    return
            work()
            del work  # and its result
            self._idle.append(queue)


_THREADS = _Threads()


async def completed(work: Awaitable[T]) -> T:
    """Wait for work that must not be left half done. A cancellation meanwhile is raised afterwards."""
    task = asyncio.ensure_future(work)
    was_cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            was_cancelled = True
    if was_cancelled:
        _ = task.cancelled() or task.exception()  # retrieved, so that asyncio does not warn of it
        raise asyncio.CancelledError
    return task.result()


@asynccontextmanager
async def entered(context: AbstractContextManager[T]) -> AsyncGenerator[T]:
    """Enter and leave a synchronous context in threads.

    The context is always left, also when the caller was cancelled while it was being entered.
    """
    entering = _start(context.__enter__)
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
    """Run a call that must not be left running. A cancellation waits until the call has ended."""
    return await completed(run_in_thread(call, *args, **kwargs))


async def run_or_undo(call: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Run a call that takes something, and undo it if the caller was cancelled meanwhile.

    The undo runs once the call has ended, so nothing stays taken without an owner.
    """
    running = asyncio.ensure_future(run_in_thread(call))
    try:
        return await completed(running)
    except asyncio.CancelledError:
        await _undone(running, undo)
        raise


async def _undone(running: asyncio.Future[T], undo: Callable[[T], None]) -> None:
    async def undone() -> None:
        await asyncio.wait({running})
        if not running.cancelled() and running.exception() is None:
            with suppress(Failure):  # the undo failed: the taken item expires
                await run_in_thread(undo, running.result())

    with suppress(asyncio.CancelledError):
        await completed(undone())


class UnderWay(Generic[T]):
    """A coroutine that runs on a loop's thread, as other threads see it."""

    def __init__(self, future: Future[T], ended: threading.Event) -> None:
        self._future = future
        self._ended = ended

    def result(self) -> T:
        """Wait for the coroutine and return its result."""
        return self._future.result()

    def then(self, call: Callable[[], None]) -> None:
        """Call a function once the coroutine has ended, with success or not."""
        self._future.add_done_callback(lambda _: call())

    def stop(self) -> None:
        """Cancel the coroutine and wait for its end. The future is done at once, the coroutine behind it
        is not."""
        if not self._future.done():
            self._future.cancel()
            self._ended.wait(STOP_S_MAX)


class LoopThread:
    """An event loop in a thread of its own, for callers without one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine's result. An interruption cancels the coroutine and waits for its end."""
        under_way = self.start(coroutine)
        try:
            return under_way.result()
        except BaseException:
            under_way.stop()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> UnderWay[T]:
        ended = threading.Event()

        async def with_end() -> T:
            try:
                return await coroutine
            finally:
                ended.set()

        return UnderWay(asyncio.run_coroutine_threadsafe(with_end(), self._started()), ended)

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
    """Cancel the remaining tasks and let them clean up, as `asyncio.run` does at its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop until it is stopped.

    A coroutine that raises SystemExit or KeyboardInterrupt stops the loop under its callers, which would then
    wait for ever. The exception is the result of that coroutine, and no reason for the loop to end.
    """
    while True:
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            continue
        return
