"""The threads of an event loop that the calls of one account may take at the same time.

A call takes a place of its account's share and gives it back when it ends. So the calls of one account wait
for each other and never for those of another. Work for no account has a share of its own.

A call that begins to wait for a lock gives its place back at once. It keeps its thread. It does not take a
place again when it has the lock: the call that holds a lock must be able to finish and release it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from weakref import WeakValueDictionary

SOON_MAX = (os.cpu_count() or 1) + 4
"""Calls of one account that run in threads of one loop at the same time."""

WAITING_MAX = 200
"""Calls of one account that wait for locks at the same time, each in its thread. More are refused at once:
each thread takes memory, and so many writers cannot all have their turn within ten seconds."""

_ACCOUNT: ContextVar[str | None] = ContextVar("account", default=None)


class ThreadShare:
    """The places of one account in the threads of one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.places = asyncio.Semaphore(SOON_MAX)
        self.waiting = 0
        """Calls that wait for a lock now."""
        self._guard = threading.Lock()

    def wait_begins(self) -> bool:
        """Count a call that is about to wait. Return False when too many wait already."""
        with self._guard:
            may_wait = self.waiting < WAITING_MAX
            self.waiting += may_wait
            return may_wait

    def wait_ends(self) -> None:
        """Count a call that waits no longer."""
        with self._guard:
            self.waiting -= 1


class ThreadSlot:
    """A place in a share, for one call."""

    def __init__(self, share: ThreadShare) -> None:
        self._share = share
        self._is_taken = False

    async def __aenter__(self) -> ThreadSlot:
        await self._share.places.acquire()
        self._is_taken = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    @contextmanager
    def waiting(self) -> Generator[bool]:
        """Give the place back for good, in the thread of the call, because it has to wait."""
        if not self._share.wait_begins():
            yield False
            return
        try:
            with suppress(RuntimeError):  # the loop is closed
                self._share.loop.call_soon_threadsafe(self._give_back)
            yield True
        finally:
            self._share.wait_ends()

    def _give_back(self) -> None:
        """Release the place. Only the loop calls this: at the first wait of the call, and at its end."""
        if self._is_taken:
            self._is_taken = False
            self._share.places.release()


_SHARES: dict[asyncio.AbstractEventLoop, WeakValueDictionary[str | None, ThreadShare]] = {}
"""The share of an account is kept by the calls that use it."""


def take_share_of(account_id: str) -> None:
    """Count the calls that this task makes from now on, and tasks that it starts, as the account's."""
    _ACCOUNT.set(account_id)


def current_share() -> ThreadShare:
    """Return the share of the account that the running task works for, in the running loop."""
    loop = asyncio.get_running_loop()
    shares = _SHARES.get(loop)
    if shares is None:
        for other in list(_SHARES):
            if other.is_closed():  # a share keeps its loop alive
                _SHARES.pop(other, None)
        shares = _SHARES[loop] = WeakValueDictionary()
    account_id = _ACCOUNT.get()
    share = shares.get(account_id)
    if share is None:
        share = shares[account_id] = ThreadShare()
    return share
