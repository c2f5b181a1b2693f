"""A hook for work that a caller can start while a store waits for its disk or its network.

A batch makes the thread that writes it wait for a fraction of a millisecond or for several. A caller with
work for that time registers it around the call (`meanwhile`). The store starts it when nothing is left but
to wait (`about_to_wait`). It is a hint: some stores never wait. Only afterwards is it known whether the
batch was written.

The store has to choose the moment. If another thread began sooner, it would take the interpreter away from
the writing thread. Both would then be later than if each had waited for the other (measured:
docs/decisions/0143-a-question-is-got-ready-while-it-is-kept.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_BEGIN: ContextVar[Callable[[], None] | None] = ContextVar("meanwhile", default=None)


@contextmanager
def meanwhile(begin: Callable[[], None]) -> Generator[None]:
    """Register `begin` for the calls inside this context.

    The thread that is about to wait calls `begin` at most once. `begin` must return at once and raise
    nothing.
    """
    token = _BEGIN.set(begin)
    try:
        yield
    finally:
        _BEGIN.reset(token)


def about_to_wait() -> None:
    begin = _BEGIN.get()
    if begin is not None:
        _BEGIN.set(None)
        begin()
