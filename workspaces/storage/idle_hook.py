"""What can be done while a store waits for its disk or its network.

A batch keeps the thread that writes it waiting for a fraction of a millisecond or for several. Whoever has
something to do in that time says so around the call (`meanwhile`), and the store calls it when nothing is
left but to wait (`about_to_wait`). It is a hint: some stores never wait, and whether the batch is written
is known only afterwards.

It has to be the store that says when. Begun sooner, in another thread, it takes the interpreter away from the
one that writes, and both are later than if each had waited for the other (measured:
docs/decisions/0143-a-question-is-got-ready-while-it-is-kept.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_BEGIN: ContextVar[Callable[[], None] | None] = ContextVar("meanwhile", default=None)


@contextmanager
def meanwhile(begin: Callable[[], None]) -> Generator[None]:
    """`begin` is called at most once, by the thread that is about to wait. It must be over at once, and raise
    nothing."""
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
