"""Running a program to its end or to a bound: its output read while it streams, what it takes watched.

What it takes is asked again and again, seldom enough that asking costs a tenth of the time at most. So
a bound can be passed by what a program manages in such a pause; the hard limits that the kernel holds
(size of one file, memory of one process, number of processes) keep that small.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

from harness.crossing import completed, in_thread
from harness.sandboxes.capture import Capture
from harness.sandboxes.family import taken_by
from harness.sandboxes.port import OUTPUT_BYTES_MAX, Bind, Bounds, Cause, Ended
from workspaces.errors import Failure, Unavailable
from workspaces.upkeep import measure

WATCH_S = 0.1
WATCH_SHARE = 10
"""A look takes one tenth of the time at most."""

BLIND_LOOKS_MAX = 20
"""In a row: a tree that cannot be measured for so long is kept from being measured."""

DISK_RESERVE_BYTES = 500 * 10**6
"""A program that fills the disk up to here is ended, by whatever trick its files hide from a walk."""

PIECE_BYTES = 256 * 1024
KILL_AGAIN_S = 0.01

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Spawn:
    """How to start a program, and how to end it with all that it started."""

    argv: Sequence[str]
    kill: Callable[[Process], None]
    """Asked again until it has ended: there may be nothing to be killed yet."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    is_attached: bool = False
    """To the caller's own streams; then nothing is captured."""


async def supervise(spawn: Spawn, bounds: Bounds, watched: Sequence[Bind]) -> Ended:
    """Unavailable when it cannot be started. It is started by the thread of the event loop, which lives
    as long as the server: a sandbox dies with the thread that started it."""
    process = _started(spawn)
    stream = _Stream(process, bounds.shown_bytes)
    ending = asyncio.create_task(_end(process))
    flooding = asyncio.create_task(stream.flooded.wait())
    watching = asyncio.create_task(_watch(process.pid, bounds, watched))
    try:
        await asyncio.wait(
            {ending, flooding, watching},
            timeout=bounds.seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        cause = _cause(ending, flooding, watching)
    finally:
        watching.cancel()
        flooding.cancel()
        await completed(_killed(spawn, process, ending))
        await completed(stream.drained.wait())  # at once: nobody is left to write
    code = ending.result()
    return Ended(cause, code if code >= 0 else 128 - code, stream.capture.ended())


def _cause(
    ending: asyncio.Task[int], flooding: asyncio.Task[Any], watching: asyncio.Task[Cause]
) -> Cause:
    if ending.done():
        return "exit"
    if flooding.done():
        return "output"
    return watching.result() if watching.done() else "time"


def _started(spawn: Spawn) -> Process:
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    if spawn.is_attached:
        streams = {}
    try:
        return cast(Process, subprocess.Popen(spawn.argv, **{**streams, **spawn.options}))
    except OSError as error:
        raise Unavailable("the sandbox", f"cannot start {spawn.argv[0]}: {error}") from error


async def _end(process: Process) -> int:
    """The return code; awaited by a handle of the process where there are such, else by a thread."""
    if not hasattr(os, "pidfd_open"):
        return await in_thread(process.wait)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return process.wait()


async def _killed(spawn: Spawn, process: Process, ending: asyncio.Task[int]) -> None:
    while not ending.done():
        spawn.kill(process)
        await asyncio.wait({ending}, timeout=KILL_AGAIN_S)


class _Stream:
    """What a program prints, taken as it comes."""

    def __init__(self, process: Process, shown_bytes: int) -> None:
        self.capture = Capture(shown_bytes)
        self.flooded = asyncio.Event()
        self.drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pipe = process.stdout
        if self._pipe is None:
            self.drained.set()
        else:
            os.set_blocking(self._pipe.fileno(), False)
            self._loop.add_reader(self._pipe.fileno(), self._take, self._pipe)

    def _take(self, pipe: IO[bytes]) -> None:
        try:
            piece = os.read(pipe.fileno(), PIECE_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self._loop.remove_reader(pipe.fileno())
            pipe.close()
            self.drained.set()
        elif self.capture.size <= OUTPUT_BYTES_MAX:
            self.capture.take(piece)
        else:
            self.flooded.set()


async def _watch(pid: int, bounds: Bounds, watched: Sequence[Bind]) -> Cause:
    """Returns when a bound is passed."""
    pause, blind = WATCH_S, 0
    free = {bind.name: _free(bind) for bind in watched}
    while True:
        await asyncio.sleep(pause)
        begun = time.monotonic()
        try:
            cause = await in_thread(_passed, pid, bounds, watched, free)
            blind = 0
        except (OSError, Failure):  # it changes faster than it can be walked through
            blind += 1
            cause = "disk" if blind >= BLIND_LOOKS_MAX else None
        if cause is not None:
            return cause
        pause = max(WATCH_S, (time.monotonic() - begun) * WATCH_SHARE)


def _passed(
    pid: int, bounds: Bounds, watched: Sequence[Bind], free_before: dict[str, int]
) -> Cause | None:
    devices = frozenset(bind.root.stat().st_dev for bind in watched)
    taken = taken_by(pid, devices)
    if taken.processes > bounds.processes:
        return "processes"
    if taken.memory_bytes > bounds.memory_bytes:
        return "memory"
    for bind in watched:
        extent = measure(bind.root)
        is_over = extent.bytes + taken.unlinked_bytes > bind.bytes_max
        if is_over or extent.entries > bind.entries_max or extent.is_opaque:
            return "disk"
        free = _free(bind)
        if free < DISK_RESERVE_BYTES and free_before[bind.name] - free > bind.bytes_max:
            return "disk"
    return None


def _free(bind: Bind) -> int:
    found = os.statvfs(bind.root)
    return found.f_bavail * found.f_frsize
