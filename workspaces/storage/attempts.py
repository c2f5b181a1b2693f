"""The attempts of one call to a store on the network: what may be sent again, how often, after what pause."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from workspaces.errors import Unavailable

TRIES_MAX = 10
"""Attempts of one call. A call that is throttled or collides with another writer is sent again later."""

LOST_ANSWERS_MAX = 2
"""A third lost answer is an outage, and each one costs the time in which an answer is waited for."""

PAUSE_S = 0.02
PAUSE_S_MAX = 1.0

T = TypeVar("T")


class Throttled(Exception):
    """The request certainly had no effect; repeat it a little later.

    `failure` is the error to raise if there is no further attempt.
    """

    def __init__(self, failure: Unavailable) -> None:
        super().__init__(failure)
        self.failure = failure


class AnswerLost(Throttled):
    """The request was sent and the answer did not come: it may have had its effect."""


def retried(call: Callable[[], T], sleep: Callable[[float], None]) -> T:
    """Return the result of a call that may be repeated."""
    attempts = Attempts(sleep)
    while True:
        try:
            return call()
        except Throttled as error:
            attempts.pause_after(error)


class Attempts:
    """The attempts of one call: limits how often it is sent again, and waits before that."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.lost = 0
        self._made = 0
        self._sleep = sleep

    def pause_after(self, error: Throttled) -> None:
        """Wait before the next attempt. Raise the failure if there is no next one."""
        self._made += 1
        self.lost += isinstance(error, AnswerLost)
        if self._made >= TRIES_MAX or self.lost > LOST_ANSWERS_MAX:
            raise error.failure from error
        pause = min(PAUSE_S_MAX, PAUSE_S * 2**self._made)
        self._sleep(pause * random.random())  # noqa: S311 - spreads the writers; not secret
