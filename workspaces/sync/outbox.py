"""What is on its way out: it may be there already, and its row does not say so yet.

Others may build on it in that moment. Who brings what they have made, and takes the row of before for what
both come from, takes what a person here has replaced meanwhile for a change of theirs. So who sends says
so, and who brings waits, once what is there was read, until those have told who were sending then.

Who writes under a condition holds the writer lock all the while, and is waited for there. Nobody waits for
the dead: what became of a write whose answer was lost is found out by the next sync.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workspaces.writer import WAIT_S, locked, opened

_PAUSE_S_MAX = 0.002


class Outbox:
    """Of one workspace on one machine. Threads and processes share the file."""

    def __init__(self, file: Path | None) -> None:
        """`file` None: nobody else sends."""
        self._file = file

    @contextmanager
    def sending(self) -> Generator[None]:
        """Any number at a time. In the block no `wait`."""
        if self._file is None:
            yield
            return
        with opened(self._file) as fd:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield

    def wait(self) -> None:
        """Until nobody sends. Not for ever: who hears nothing from the store for so long will not tell."""
        if self._file is not None:
            with opened(self._file) as fd:
                locked(fd, time.monotonic() + WAIT_S, _PAUSE_S_MAX)
