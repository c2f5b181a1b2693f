"""Repeat a conditional write that another writer was faster with.

Records are read, decided on, and written on condition that nobody else wrote in between. A refused write is
decided anew. Each lost race is a success of another writer, so many in a row mean that something is broken.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from workspaces.errors import Unavailable

ATTEMPTS_MAX = 100


def attempts(maximum: int = ATTEMPTS_MAX, *, pause_s_max: float = 0.0) -> Iterator[int]:
    """Yield the numbers of the attempts. Before each further one, pause for a random time up to this.

    So writers that have met do not meet again.
    """
    for number in range(maximum):
        if number and pause_s_max:
            time.sleep(random.uniform(0, pause_s_max))  # noqa: S311 - spreads the writers; not secret
        yield number


def contended(what: str, pronoun: str = "it") -> Unavailable:
    """Return the error after the last attempt. `pronoun` stands for `what`."""
    reason = f"too many processes write to {pronoun} at once"
    return Unavailable(what, reason, remedy="try again")
