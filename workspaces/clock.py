"""Time as a parameter: the system's, or one that a test moves by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock in UTC. It may jump; nothing that must be safe is decided by it."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment of this process; never goes back."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """Stands still until it is moved. Its two hands can be moved apart, as real ones are."""

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
        """Move the wall clock alone, as a time server or a person does."""
        self._now += timedelta(seconds=seconds)
