"""Prepares a request before it is known whether it may be sent.

A client needs more time to build a request, to find a connection and to send the head than to send the body,
and only the body holds the question. So the first can be done before the second is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from typing import Any

from harness.messages.model_request import ModelFailure, Reply
from harness.messages.progress import Emit, Progress, silent

HeldBack = Callable[[bytes], AsyncIterable[bytes]]
"""A function that returns a body which is sent only when it is allowed."""

SendRequest = Callable[[Emit, HeldBack], Coroutine[Any, Any, Reply | ModelFailure]]

HELD_S_MAX = 2.0
"""Drop the prepared request if the commit takes longer than this, or if no caller asks for it in the end."""


class EarlyRequest:
    def __init__(self, ask: SendRequest) -> None:
        loop = asyncio.get_running_loop()
        self._emit: Emit = silent
        self._may_go: asyncio.Future[None] = loop.create_future()
        self._asking = loop.create_task(ask(self._pass_on, self._held_back))
        self._asking.add_done_callback(_retrieve_exception)
        self._end = loop.call_later(HELD_S_MAX, self._asking.cancel)

    @property
    def is_lost(self) -> bool:
        """Return True if the request failed before it was used, or was dropped."""
        return self._asking.done() or self._asking.cancelling() > 0

    def give_up(self) -> None:
        self._end.cancel()
        self._asking.cancel()

    async def finish(self, emit: Emit) -> Reply | ModelFailure:
        self._end.cancel()
        self._emit = emit
        self._may_go.set_result(None)
        return await self._asking

    def _pass_on(self, progress: Progress) -> None:
        self._emit(progress)

    def _held_back(self, body: bytes) -> AsyncIterable[bytes]:
        return _Body(body, self._may_go)


class _Body:
    """A request body that waits until it may be sent. A client that is redirected may iterate over it
    again."""

    def __init__(self, body: bytes, may_go: asyncio.Future[None]) -> None:
        self._body = body
        self._may_go = may_go

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self._may_go
        yield self._body


def _retrieve_exception(asking: asyncio.Task[Any]) -> None:
    """Retrieve the exception, so that asyncio does not warn about a failure that no caller awaits."""
    if not asking.cancelled():
        asking.exception()
