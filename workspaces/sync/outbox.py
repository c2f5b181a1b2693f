"""What is on its way out: it may be there already, and its row does not say so yet.

Others may build on it in that moment. Who brings what they have made, and takes the row of before for what
both come from, takes what a person here has replaced meanwhile for a change of theirs. So who sends says
so, and who brings waits, once what is there was read, until those have told who were sending then.

Who writes under a condition holds the writer lock all the while, and is waited for there. Nobody waits for
the dead, nor for long: a push tells of each file as soon as it hears of it, so who tells nothing has heard
nothing, and an answer that comes late is like one that is lost. The next sync finds out what became of it.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workspaces.coordination.writer_lock import open_lock_file, try_lock

WAIT_S = 2.0
"""Shorter than anybody waits for the sync that waits here."""

TIRED_S = 30.0

_PAUSE_S_MAX = 0.002


class Outbox:
    """Of one workspace on one machine. Threads and processes share the file."""

    def __init__(self, file: Path | None) -> None:
        """`file` None: nobody else sends."""
        self._file = file
        self._tired_until = 0.0

    @contextmanager
    def sending(self) -> Generator[None]:
        """Any number at a time. In the block no `wait`."""
        with self._held(fcntl.LOCK_SH, WAIT_S):
            yield

    def wait(self) -> None:
        """For an instant in which nobody sends. Who has waited in vain does not wait again at once: many
        batches may come in while one push hangs."""
        now = time.monotonic()
        with self._held(fcntl.LOCK_EX, WAIT_S if now >= self._tired_until else 0.0) as is_held:
            self._tired_until = 0.0 if is_held else now + TIRED_S

    @contextmanager
    def _held(self, how: int, wait_s: float) -> Generator[bool]:
        if self._file is None:
            yield True
            return
        with open_lock_file(self._file) as fd:
            is_held = try_lock(fd, time.monotonic() + wait_s, _PAUSE_S_MAX, how)
            try:
                yield is_held
            finally:
                if is_held:
                    fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has it, too
