"""Clocks as parameters: the system's clock, a shifted one, and one that a test moves by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time in UTC. It may jump, so no safety decision depends on it."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment of this process. The value never goes back."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ShiftedClock(SystemClock):
    """The system's clock, ahead of the true time by a number of seconds: to rehearse a schedule."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead = timedelta(seconds=ahead_s)

    def now(self) -> datetime:
        return super().now() + self._ahead


class ManualClock:
    """A clock that stands still until a test moves it.

    The wall clock can be moved apart from the monotonic one, as happens with real clocks.
    """

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move only the wall clock, as a time server or a person does."""
        self._now += timedelta(seconds=seconds)


def clock_ahead(seconds: float) -> Clock:
    """Return the system's clock, ahead of the true time by so many seconds."""
    return ShiftedClock(seconds) if seconds else SystemClock()
