"""Telling the caller that a call begins to wait for somebody else.

A call may find a lock that another process holds for ten seconds. Its caller may have lent it something
that others need in that time, such as one of a few threads. So the call says that it waits (`waiting`), and
the caller can take back what it has lent (`when_waiting`). The caller can also refuse the wait, because too
many calls wait already.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

Wait = Callable[[], AbstractContextManager[bool]]
"""Returns a context that is entered for the time of one wait. It yields whether the call may wait."""

_WAIT: ContextVar[Wait | None] = ContextVar("waiting", default=None)


def when_waiting(wait: Wait) -> None:
    """Set what is entered around each wait, for what is called in this context from now on."""
    _WAIT.set(wait)


def waiting() -> AbstractContextManager[bool]:
    """Return the context for the time of a wait. It yields False when the call must not wait."""
    wait = _WAIT.get()
    return nullcontext(True) if wait is None else wait()
