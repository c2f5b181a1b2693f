"""Announce files that are being sent, because they may be in the store before their baseline rows say
so.

Another machine may build on such a file at that moment. Suppose this machine then pulls the result and
merges with the old row as the common base. Text that a person here has replaced meanwhile would look
like a change by the other machine. So a sender holds a shared lock while it sends. A puller reads the
store first. Then it waits until the senders of that moment have recorded their rows.

A conditional write by a person or an agent holds the writer lock all the while, and the puller waits for
that lock separately. The puller waits neither for a dead process nor for long. A push records each file
as soon as the store answers. A sender that has recorded nothing has therefore received no answer. An
answer that arrives late is like an answer that was lost: the next sync finds out what happened to the
write.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workspaces.coordination.writer_lock import open_lock_file, try_lock

WAIT_S = 2.0
"""Seconds to wait for a lock, shorter than any caller waits for the sync that waits here."""

NO_WAIT_S = 30.0
"""Seconds after a timeout during which `wait` does not wait again."""

_PAUSE_S_MAX = 0.002


class Outbox:
    """The lock between senders and pullers of one workspace on one machine. Threads and processes share
    the file."""

    def __init__(self, file: Path | None) -> None:
        """Use the lock `file`. With None, no other process sends."""
        self._file = file
        self._no_wait_until = 0.0

    @contextmanager
    def sending(self) -> Generator[None]:
        """Hold the shared lock while the block sends. Any number of senders may hold it. Do not call
        `wait` inside."""
        with self._flock(fcntl.LOCK_SH, WAIT_S):
            yield

    def wait(self) -> None:
        """Wait for a moment in which no sender is active.

        After a timeout the next calls do not wait for `NO_WAIT_S`, because many batches may arrive while
        one push hangs.
        """
        now = time.monotonic()
        with self._flock(fcntl.LOCK_EX, WAIT_S if now >= self._no_wait_until else 0.0) as is_locked:
            self._no_wait_until = 0.0 if is_locked else now + NO_WAIT_S

    @contextmanager
    def _flock(self, operation: int, wait_s: float) -> Generator[bool]:
        if self._file is None:
            yield True
            return
        with open_lock_file(self._file) as fd:
            is_locked = try_lock(fd, time.monotonic() + wait_s, _PAUSE_S_MAX, operation)
            try:
                yield is_locked
            finally:
                if is_locked:
                    fcntl.flock(fd, fcntl.LOCK_UN)  # a child forked meanwhile holds the same lock
