"""Check whether a home can work now: its disk takes a write, its records answer, and S3 answers where the
home uses it. A disk that has little space left is told, and the home still works.

Anyone who reaches the port may ask, so a request must be cheap. A result is valid for `KEPT_S`. Only one
check of a part runs at a time, and requests that arrive meanwhile wait for it. A check of a disk or a server
that hangs occupies its one thread, and no request waits longer than `ANSWER_S`.

A request needs no key, so the answer names no path and no address. The log has them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.bootstrap.composition import Application
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.json_log import event
from workspaces.accounts.principal import DEFAULT_ACCOUNT
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.home.layout import Home

_log = logging.getLogger("harness.bootstrap.readiness")

KEPT_S = 2.0
"""Seconds for which a result is valid."""
DISK_SHARE_LOW = 0.1
DISK_BYTES_LOW = 500 * 10**6
ANSWER_S = 2.0
"""The most seconds that a request waits for a check."""


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """The check of one part."""

    name: str
    look: Callable[[], object]
    """The check itself. It raises a Failure when the part does not work."""
    lacking: str
    """The message when the check fails."""
    remedy: str
    is_needed: bool = True
    """False if the home works without: the part is shown, and nothing more."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """A part that is not ready."""

    part: str
    code: str
    message: str
    remedy: str
    is_needed: bool = True


class Readiness:
    """The readiness of a home: the checks of all its parts."""

    def __init__(
        self,
        parts: Sequence[ReadinessCheck],
        clock: Clock,
        *,
        answer_s: float = ANSWER_S,
        is_demo: bool = False,
    ) -> None:
        self.is_demo = is_demo
        """True if the demo model answers for agents that name no model."""
        self._checks = [_Check(part, clock, answer_s) for part in parts]

    @property
    def parts(self) -> list[str]:
        return [check.part.name for check in self._checks]

    async def lacks(self) -> list[NotReady]:
        """Return the parts that are not ready; an empty list when all are."""
        results = await asyncio.gather(*(check.result() for check in self._checks))
        return [lack for lack in results if lack is not None]


def readiness_of(application: Application) -> Readiness:
    parts = [
        ReadinessCheck(
            "home",
            application.settings.home.check_writable,
            "the home is not writable",
            "free space on the disk of the home, or make it writable again",
        ),
        ReadinessCheck(
            "disk",
            lambda: check_disk(application.settings.home),
            "the disk of the home has little space left",
            "free space on the disk of the home",
            is_needed=False,
        ),
        ReadinessCheck(
            "records",
            lambda: application.records.get(DEFAULT_ACCOUNT),
            "the records do not answer",
            "check the store that the setting `records` names; `harness doctor` shows details",
        ),
    ]
    if application.place is not None:
        remedy = "check the server and the network to it; `harness doctor` shows details"
        parts.append(ReadinessCheck("s3", application.place.ask, "S3 does not answer", remedy))
    is_demo = application.models.demo_notice() is not None
    return Readiness(parts, application.clock, is_demo=is_demo)


def check_disk(home: Home) -> None:
    """Raise LowDisk if the disk of the home has little space left, for its size and in bytes."""
    usage = shutil.disk_usage(home.root)
    if usage.free < min(usage.total * DISK_SHARE_LOW, DISK_BYTES_LOW):
        raise LowDisk(str(home.root), usage.free)


class LowDisk(Failure):
    """A disk has little space left."""

    code = "low"

    def __init__(self, place: str, free: int) -> None:
        super().__init__(f"the disk of {place} has {free / 10**6:.0f} MB left")


class _Check:
    """The check of one part with its latest result."""

    def __init__(self, part: ReadinessCheck, clock: Clock, answer_s: float) -> None:
        self.part = part
        self._clock = clock
        self._answer_s = answer_s
        self._running: asyncio.Task[None] | None = None
        self._lack: NotReady | None = None
        self._checked_at = -math.inf

    async def result(self) -> NotReady | None:
        if self._clock.monotonic() - self._checked_at < KEPT_S:
            return self._lack
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        running = self._running
        await asyncio.wait({running}, timeout=self._answer_s)
        if not running.done():
            return self._lacking("too_slow")
        running.result()  # raises an unexpected error: a bug
        return self._lack

    async def _run(self) -> None:
        try:
            self._lack = await run_in_new_thread(self._check)
            self._checked_at = self._clock.monotonic()
        finally:
            self._running = None

    def _check(self) -> NotReady | None:
        try:
            self.part.look()
        except Failure as failure:
            event(_log, "unready", level=logging.ERROR, part=self.part.name, reason=str(failure))
            return self._lacking(failure.code)
        return None

    def _lacking(self, code: str) -> NotReady:
        part = self.part
        return NotReady(part.name, code, part.lacking, part.remedy, part.is_needed)
