"""A hook that tells the caller that a call begins to wait for another process.

A call may find a lock that another process holds for ten seconds. Its caller may have lent it a resource
that others need in that time, such as one of a few threads. So the call announces the wait (`waiting`), and
the caller can take the resource back (`when_waiting`). The caller can also refuse the wait, because too
many calls wait already.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

Wait = Callable[[], AbstractContextManager[bool]]
"""Returns a context that is entered for the time of one wait. It yields True if the call may wait."""

_WAIT: ContextVar[Wait | None] = ContextVar("waiting", default=None)


def when_waiting(wait: Wait) -> None:
    """Set the context that surrounds each wait of later calls in this context."""
    _WAIT.set(wait)


def waiting() -> AbstractContextManager[bool]:
    """Return the context for the time of a wait. It yields False when the call must not wait."""
    wait = _WAIT.get()
    return nullcontext(True) if wait is None else wait()
