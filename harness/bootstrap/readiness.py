"""Readiness: whether a home can work now. Its disk takes a write, its records answer, and so does S3, where
the home uses it.

Whoever reaches the port may ask, so asking is cheap: what was found counts for `KEPT_S`, a part is looked
at once at a time, and who asks meanwhile waits for that look. A look at a disk or a server that hangs
keeps its one thread, and nobody waits for it longer than `ANSWER_S`.

Nobody needs a key to ask, so the answer names no place and no address: those are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.bootstrap.composition import Application
from harness.runtime.async_bridge import run_in_new_thread
from harness.runtime.json_log import event
from workspaces.accounts.account import DEFAULT_ACCOUNT
from workspaces.clock import Clock
from workspaces.errors import Failure

_log = logging.getLogger("harness.bootstrap.readiness")

KEPT_S = 2.0
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    name: str
    look: Callable[[], object]
    """Raises a Failure when the part cannot be worked with."""
    lacking: str
    """What is told when it does."""
    remedy: str


@dataclass(frozen=True, slots=True)
class NotReady:
    """A part that is not ready."""

    part: str
    code: str
    message: str
    remedy: str


class Readiness:
    def __init__(
        self, parts: Sequence[ReadinessCheck], clock: Clock, *, answer_s: float = ANSWER_S
    ) -> None:
        self._looks = [_Look(part, clock, answer_s) for part in parts]

    @property
    def parts(self) -> list[str]:
        return [look.part.name for look in self._looks]

    async def lacks(self) -> list[NotReady]:
        """Return what is not ready; nothing when all is."""
        found = await asyncio.gather(*(look.found() for look in self._looks))
        return [lack for lack in found if lack is not None]


def readiness_of(house: Application) -> Readiness:
    parts = [
        ReadinessCheck(
            "home",
            house.settings.home.check_writable,
            "nothing can be written into the home",
            "free space on the disk of the home, or make it writable again",
        ),
        ReadinessCheck(
            "records",
            lambda: house.records.get(DEFAULT_ACCOUNT),
            "the records do not answer",
            "look after the store that the setting `records` names; `harness doctor` says more",
        ),
    ]
    if house.place is not None:
        remedy = "look after the server and the network to it; `harness doctor` says more"
        parts.append(ReadinessCheck("s3", house.place.ask, "S3 does not answer", remedy))
    return Readiness(parts, house.clock)


class _Look:
    def __init__(self, part: ReadinessCheck, clock: Clock, answer_s: float) -> None:
        self.part = part
        self._clock = clock
        self._answer_s = answer_s
        self._running: asyncio.Task[None] | None = None
        self._lack: NotReady | None = None
        self._looked_at = -math.inf

    async def found(self) -> NotReady | None:
        if self._clock.monotonic() - self._looked_at < KEPT_S:
            return self._lack
        if self._running is None:
            self._running = asyncio.create_task(self._look())
        running = self._running
        await asyncio.wait({running}, timeout=self._answer_s)
        if not running.done():
            return self._lacking("too_slow")
        running.result()  # raises what is a bug of ours
        return self._lack

    async def _look(self) -> None:
        try:
            self._lack = await run_in_new_thread(self._examined)
            self._looked_at = self._clock.monotonic()
        finally:
            self._running = None

    def _examined(self) -> NotReady | None:
        try:
            self.part.look()
        except Failure as failure:
            event(_log, "unready", level=logging.ERROR, part=self.part.name, reason=str(failure))
            return self._lacking(failure.code)
        return None

    def _lacking(self, code: str) -> NotReady:
        return NotReady(self.part.name, code, self.part.lacking, self.part.remedy)
