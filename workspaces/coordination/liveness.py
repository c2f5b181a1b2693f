"""Silence: how long a sign of life has not changed, judged without comparing clocks.

Somebody else's clock says nothing about ours, so nobody's time stamps are read. Whoever wants to take
over looks twice, at least so many seconds apart by the own monotonic clock, and must have seen the same
sign both times. A look lasts from before the sign was read until after: the shorter span counts, so that
an observer who was paused in the middle of a look believes too little, never too much.
"""

from __future__ import annotations

from workspaces.clock import Clock


class Liveness:
    """What one process has seen of others. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def lasts(self, key: str, sign: object, *, looked_at: float, seconds: float) -> bool:
        """Whether `sign`, read after the moment `observed`, was there `seconds` before already."""
        seen, since = self._seen.get(key, (None, 0.0))
        if seen != sign:
            self._seen[key] = (sign, self._clock.monotonic())
            return False
        return looked_at - since >= seconds

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)
