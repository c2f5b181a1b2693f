"""A question that is got ready to be asked, while it is not known yet whether it may be.

To build a request, to find a connection for it and to send its head takes a client longer than to send the
body, which alone says what is asked. So the one can be done before the other may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from typing import Any

from harness.messages.model_request import ModelFailure, Reply
from harness.messages.progress import Emit, Progress, silent

HeldBack = Callable[[bytes], AsyncIterable[bytes]]
"""A body that comes when it may."""

SendRequest = Callable[[Emit, HeldBack], Coroutine[Any, Any, Reply | ModelFailure]]

HELD_S_MAX = 2.0
"""For a batch to be written. Then it is given up, and so is what nobody asks for in the end."""


class EarlyRequest:
    def __init__(self, ask: SendRequest) -> None:
        loop = asyncio.get_running_loop()
        self._emit: Emit = silent
        self._may_go: asyncio.Future[None] = loop.create_future()
        self._asking = loop.create_task(ask(self._tell, self._held_back))
        self._asking.add_done_callback(_look_at)
        self._end = loop.call_later(HELD_S_MAX, self._asking.cancel)

    @property
    def is_lost(self) -> bool:
        """It has failed before it could be of use, or was given up."""
        return self._asking.done() or self._asking.cancelling() > 0

    def give_up(self) -> None:
        self._end.cancel()
        self._asking.cancel()

    async def finish(self, emit: Emit) -> Reply | ModelFailure:
        self._end.cancel()
        self._emit = emit
        self._may_go.set_result(None)
        return await self._asking

    def _tell(self, progress: Progress) -> None:
        self._emit(progress)

    def _held_back(self, body: bytes) -> AsyncIterable[bytes]:
        return _Body(body, self._may_go)


class _Body:
    """May be gone through again, as a client does that is redirected."""

    def __init__(self, body: bytes, may_go: asyncio.Future[None]) -> None:
        self._body = body
        self._may_go = may_go

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self._may_go
        yield self._body


def _look_at(asking: asyncio.Task[Any]) -> None:
    """So that nobody warns of a failure that nobody waits for."""
    if not asking.cancelled():
        asking.exception()
