"""Stop a running turn: at its time limit, or when a caller cancels it.

Both are a deadline that has passed. So there is one way to end a turn in its middle, and one place that
repairs its transcript afterwards.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal

StopReason = Literal["interrupted", "out_of_time"]


class Stopped(Exception):
    """The exception that replaces the result of the interrupted operation."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


class Cancellation:
    """A context manager around an operation that may be stopped.

    Enter it once. Any thread may call `cancel`.
    """

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)
        self._loop = asyncio.get_running_loop()
        self._is_inside = False
        self.is_cancelled = False

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self.is_cancelled = True
        if self._is_inside:
            self._timeout.reschedule(self._loop.time())

    async def __aenter__(self) -> Cancellation:
        await self._timeout.__aenter__()
        self._is_inside = True
        if self.is_cancelled:
            self._cancel()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_inside = False
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as timeout:
            raise Stopped("interrupted" if self.is_cancelled else "out_of_time") from timeout
