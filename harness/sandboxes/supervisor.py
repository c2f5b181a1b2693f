"""Running a program to its end or to a bound: its output read while it streams, what it takes watched.

What it takes is asked again and again, seldom enough that asking costs a tenth of the time at most. What
is written in such a pause shows in the free space of the disk, which is asked for far more often: once so
much has gone that a tree may have passed its bound, the next look is taken at once. So a tree passes its
bound by what is written within one glance and one look. A sandbox that begins past it lets no file grow,
so that the next command does not add the same again.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

from harness.runtime.async_bridge import completed, run_in_thread
from harness.sandboxes.output_capture import OutputCapture
from harness.sandboxes.port import OUTPUT_BYTES_MAX, Bind, Cause, CommandLimits, CommandResult
from harness.sandboxes.process_tree import Taken, taken_by
from workspaces.errors import Failure, Unavailable
from workspaces.localfs.permissions import measure

WATCH_S = 0.1
WATCH_SHARE = 10
"""A look takes one tenth of the time at most; one that free space calls for takes half of it."""

GLANCE_S = 0.01
"""Between two looks at the free space, each a call of microseconds. [Six writers on two cores write up to
3 GB/s: 30 MB in this time.]"""

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


async def supervise(spawn: Spawn, bounds: CommandLimits, watched: Sequence[Bind]) -> CommandResult:
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
    return CommandResult(cause, code if code >= 0 else 128 - code, stream.capture.ended())


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
        return await run_in_thread(process.wait)
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
        self.capture = OutputCapture(shown_bytes)
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


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look at a program has found."""

    cause: Cause | None
    room: dict[str, int]
    """How many bytes each tree may still take."""
    free: dict[str, int]
    """Of the disk of each tree, when the look began."""


async def _watch(pid: int, bounds: CommandLimits, watched: Sequence[Bind]) -> Cause:
    """Return what was passed, when a bound is passed."""
    before = {bind.name: _free(bind) for bind in watched}
    look = _Look(None, {bind.name: _room(bind, bind.taken.bytes) for bind in watched}, before)
    took_s, blind = 0.0, 0
    while True:
        await _pause(look, took_s, watched)
        begun = time.monotonic()
        try:
            look = await run_in_thread(_look, pid, bounds, watched, before)
        except (OSError, Failure):  # it changes faster than it can be walked through
            blind += 1
            if blind >= BLIND_LOOKS_MAX:
                return "disk"
            await asyncio.sleep(WATCH_S)  # whatever the free space says: it may be quiet by then
            continue
        if look.cause is not None:
            return look.cause
        took_s, blind = time.monotonic() - begun, 0


async def _pause(look: _Look, took_s: float, watched: Sequence[Bind]) -> None:
    """Wait for the next look: until it is due, or until a tree may have passed its bound."""
    begun = time.monotonic()
    while True:
        waited_s = time.monotonic() - begun
        if waited_s >= max(WATCH_S, took_s * WATCH_SHARE):
            return
        # Whoever else writes to the disk calls for looks, too: then they cost half the time at most.
        if waited_s >= max(GLANCE_S, took_s) and any(
            look.free[bind.name] - _free(bind) > look.room[bind.name] for bind in watched
        ):
            return
        await asyncio.sleep(GLANCE_S)


def _look(
    pid: int, bounds: CommandLimits, watched: Sequence[Bind], before: dict[str, int]
) -> _Look:
    """Look at all that a program takes. `before`: the free space when it began."""
    free, room = {bind.name: _free(bind) for bind in watched}, dict[str, int]()
    taken = taken_by(pid, frozenset(bind.root.stat().st_dev for bind in watched))
    cause = _passed(taken, bounds)
    for bind in watched:
        extent = measure(bind.root)
        extent.bytes += taken.unlinked_bytes
        room[bind.name] = _room(bind, extent.bytes)
        gone = before[bind.name] - free[bind.name]
        is_disk_full = free[bind.name] < DISK_RESERVE_BYTES and gone > bind.bytes_max
        if cause is None and (bind.is_passed_by(extent) or is_disk_full):
            cause = "disk"
    return _Look(cause, room, free)


def _passed(taken: Taken, bounds: CommandLimits) -> Cause | None:
    if taken.processes > bounds.processes:
        return "processes"
    return "memory" if taken.memory_bytes > bounds.memory_bytes else None


def _room(bind: Bind, taken_bytes: int) -> int:
    return max(bind.bytes_max, bind.taken.bytes) - taken_bytes


def _free(bind: Bind) -> int:
    found = os.statvfs(bind.root)
    return found.f_bavail * found.f_frsize
