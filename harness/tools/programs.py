"""The programs that tools run: a sandbox, if there is one, and ripgrep."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from pathlib import Path

from harness.runtime.async_bridge import LoopThread
from harness.runtime.json_log import event
from harness.sandboxes.bundled_programs import ripgrep
from harness.sandboxes.port import Sandbox
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.home.layout import Home


@dataclass(frozen=True, slots=True)
class ToolPrograms:
    sandbox: Sandbox | None
    """A sandbox whose self-test showed that it confines commands on this machine."""
    ripgrep: Path | None


NO_PROGRAMS = ToolPrograms(None, None)

PROGRAMS_AGAIN_S = 10.0
"""Seconds until missing programs are looked for again; they may have been installed by then.

A self-test that fails takes longer than all other work before a turn's first request.
"""

_log = logging.getLogger("harness.tools.programs")


class ProgramSearch:
    """The search for the programs of one machine. Threads may share it."""

    def __init__(self, sandbox: Sandbox, home: Home, clock: Clock) -> None:
        self._sandbox = sandbox
        self._home = home
        self._clock = clock
        self._found: ToolPrograms | None = None
        self._again_at = math.inf
        self._lock = threading.Lock()

    def find(self) -> ToolPrograms:
        """Return the programs for tools, with a sandbox if one can confine commands on this machine now.

        An event loop must not call this: it waits for the self-test.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._found is None or now >= self._again_at:
                self._found = self._search()
                is_whole = self._found.sandbox is not None and self._found.ripgrep is not None
                self._again_at = math.inf if is_whole else now + PROGRAMS_AGAIN_S
            return self._found

    def _search(self) -> ToolPrograms:
        loop = LoopThread()
        try:
            confinement = loop.run(self._sandbox.check())
        finally:
            loop.close()
        if not confinement.works:
            # Turns go on without bash. This is told once, however often it is tried again.
            if self._found is None or self._found.sandbox is not None:
                event(_log, "no sandbox", level=logging.WARNING, reason=confinement.detail)
            return ToolPrograms(None, ripgrep(None))
        try:
            return ToolPrograms(self._sandbox, ripgrep(self._home))
        except Failure:  # the disk is full, for example: the turn goes on without ripgrep
            return ToolPrograms(self._sandbox, None)
