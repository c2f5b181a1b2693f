"""Liveness: finds out for how long a sign of life has not changed, without comparing clocks.

The clock of another machine says nothing about the local one, so its time stamps are never read. An
observer that wants to take over looks twice, at least so many seconds apart by its own monotonic clock. It
must see the same sign both times. A look takes time: it begins before the sign is read and ends after. The
shorter span between two looks counts. So an observer that was paused during a look underestimates the
time, and never overestimates it.
"""

from __future__ import annotations

from workspaces.clock import Clock


class Liveness:
    """The signs of life that one process has seen of others. Threads may share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def lasts(self, key: str, sign: object, *, looked_at: float, seconds: float) -> bool:
        """Return True if `sign` has not changed for `seconds`.

        The caller has read `sign` after the moment `looked_at`.
        """
        previous, since = self._seen.get(key, (None, 0.0))
        if previous != sign:  # a sign of life: the time starts again
            self._seen[key] = (sign, self._clock.monotonic())
            return False
        return looked_at - since >= seconds

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)
