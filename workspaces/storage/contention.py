"""Repeat a conditional write that another writer was faster with.

Records are read, decided on, and written on condition that nobody else wrote in between. A refused write is
decided anew. Each lost race is a success of another writer, so many in a row mean that something is broken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from workspaces.errors import Conflict, Unavailable

ATTEMPTS_MAX = 100
"""Of two writers, one succeeds each time. Of ten, the others are faster a hundred times in a row once in
37 000 writes."""

P = ParamSpec("P")
T = TypeVar("T")


def until_written(
    what: str,
    maximum: int = ATTEMPTS_MAX,
    *,
    pause_s_max: float = 0.0,
    lost: tuple[type[Exception], ...] = (Conflict,),
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that reads, decides and writes. It is called again whenever it `lost` the race.

    Only these very kinds of error say so: AlreadyExists, for example, is a conflict that repeating does not
    help. After the last attempt the function raises Unavailable; `what` names what could not be written.
    """

    def decorate(write: Callable[P, T]) -> Callable[P, T]:
        @wraps(write)
        def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
            for _ in attempts(maximum, pause_s_max=pause_s_max):
                try:
                    return write(*args, **kwargs)
                except lost as failure:
                    if type(failure) not in lost:
                        raise
            raise contended(what)

        return repeated

    return decorate


def attempts(maximum: int = ATTEMPTS_MAX, *, pause_s_max: float = 0.0) -> Iterator[int]:
    """Yield the numbers of the attempts. Before each further one, pause for a random time up to this.

    So writers that have met do not meet again. This is for a loop that `until_written` cannot express.
    """
    for number in range(maximum):
        if number and pause_s_max:
            time.sleep(random.uniform(0, pause_s_max))  # noqa: S311 - spreads the writers; not secret
        yield number


def contended(what: str) -> Unavailable:
    """Return the error after the last attempt."""
    return Unavailable(what, "others keep writing at the same time", remedy="try again")
