"""Supervises a program until it ends or exceeds a limit: reads its output and measures its resources.

The resources are measured repeatedly, but so seldom that measuring takes at most a tenth of the time. Writes
between two measurements show in the free space of the disk, which is checked far more often. Once so much has
gone that a tree may exceed its limit, the next measurement starts at once. So a tree exceeds its limit at
most by the writes during one check and one measurement. In a sandbox that begins above its limit no file can
grow, so that the next command does not add the same again.
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

MEASURE_INTERVAL_S = 0.1
MEASURE_TIME_DIVISOR = 10
"""The divisor of the time for measurements: one tenth at most. Those that free space triggers take half."""

FREE_SPACE_INTERVAL_S = 0.01
"""Seconds between two checks of the free space, each a call of microseconds. [Six writers on two cores write
up to 3 GB/s: 30 MB in this time.]"""

FAILED_MEASUREMENTS_MAX = 20
"""The most failed measurements in a row. A tree that cannot be measured for so long is evading
measurement."""

DISK_RESERVE_BYTES = 500 * 10**6
"""Free space at which a program that fills the disk is ended, however its files hide from a walk."""

PIECE_BYTES = 256 * 1024
KILL_AGAIN_S = 0.01

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Spawn:
    """The way to start a program, and to end it with all its processes."""

    argv: Sequence[str]
    kill: Callable[[Process], None]
    """Kills the program. It is called until the program has ended, because there may be nothing to kill
    yet."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    is_attached: bool = False
    """True if the program uses the caller's own streams; then nothing is captured."""


async def supervise(spawn: Spawn, limits: CommandLimits, watched: Sequence[Bind]) -> CommandResult:
    """Run a program to its end or to a limit.

    The thread of the event loop starts the program, because that thread lives as long as the server: a
    sandbox dies with the thread that started it.

    Raises: Unavailable if the program cannot be started.
    """
    process = _start(spawn)
    stream = _Stream(process, limits.shown_bytes)
    ending = asyncio.create_task(_end(process))
    flooding = asyncio.create_task(stream.flooded.wait())
    watching = asyncio.create_task(_watch(process.pid, limits, watched))
    try:
        await asyncio.wait(
            {ending, flooding, watching},
            timeout=limits.seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        cause = _cause(ending, flooding, watching)
    finally:
        watching.cancel()
        flooding.cancel()
        await completed(_kill(spawn, process, ending))
        await completed(stream.drained.wait())  # ends at once: no process is left that could write
    code = ending.result()
    return CommandResult(cause, code if code >= 0 else 128 - code, stream.capture.result())


def _cause(
    ending: asyncio.Task[int], flooding: asyncio.Task[Any], watching: asyncio.Task[Cause]
) -> Cause:
    if ending.done():
        return "exit"
    if flooding.done():
        return "output"
    return watching.result() if watching.done() else "time"


def _start(spawn: Spawn) -> Process:
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
    """Return the exit code of the process. It is awaited with a pidfd if the system has one, else in a
    thread."""
    if not hasattr(os, "pidfd_open"):
        return await run_in_thread(process.wait)
    loop, has_ended = asyncio.get_running_loop(), asyncio.Event()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, has_ended.set)
    try:
        await has_ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return process.wait()


async def _kill(spawn: Spawn, process: Process, ending: asyncio.Task[int]) -> None:
    while not ending.done():
        spawn.kill(process)
        await asyncio.wait({ending}, timeout=KILL_AGAIN_S)


class _Stream:
    """The output stream of a program, read as it arrives."""

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
class _Measurement:
    """The result of one measurement of a program."""

    cause: Cause | None
    room: dict[str, int]
    """The bytes that each tree may still take."""
    free: dict[str, int]
    """The free bytes on the disk of each tree when the measurement began."""


async def _watch(pid: int, limits: CommandLimits, watched: Sequence[Bind]) -> Cause:
    """Measure until a limit is exceeded. Return that limit."""
    before = {bind.name: _free(bind) for bind in watched}
    measurement = _Measurement(
        None, {bind.name: _room(bind, bind.taken.bytes) for bind in watched}, before
    )
    took_s, failures = 0.0, 0
    while True:
        await _pause(measurement, took_s, watched)
        began = time.monotonic()
        try:
            measurement = await run_in_thread(_measure, pid, limits, watched, before)
        except (OSError, Failure):  # the tree changes faster than it can be measured
            failures += 1
            if failures >= FAILED_MEASUREMENTS_MAX:
                return "disk"
            await asyncio.sleep(
                MEASURE_INTERVAL_S
            )  # wait even if free space shrinks: the tree may be quiet by then
            continue
        if measurement.cause is not None:
            return measurement.cause
        took_s, failures = time.monotonic() - began, 0


async def _pause(measurement: _Measurement, took_s: float, watched: Sequence[Bind]) -> None:
    """Wait for the next measurement: until it is due, or until a tree may have exceeded its limit."""
    began = time.monotonic()
    while True:
        waited_s = time.monotonic() - began
        if waited_s >= max(MEASURE_INTERVAL_S, took_s * MEASURE_TIME_DIVISOR):
            return
        # Other writers to the disk trigger measurements, too: then these cost half the time at most.
        if waited_s >= max(FREE_SPACE_INTERVAL_S, took_s) and any(
            measurement.free[bind.name] - _free(bind) > measurement.room[bind.name]
            for bind in watched
        ):
            return
        await asyncio.sleep(FREE_SPACE_INTERVAL_S)


def _measure(
    pid: int, limits: CommandLimits, watched: Sequence[Bind], before: dict[str, int]
) -> _Measurement:
    """Measure all resources that a program takes. `before`: the free space when the program began."""
    free, room = {bind.name: _free(bind) for bind in watched}, dict[str, int]()
    taken = taken_by(pid, frozenset(bind.root.stat().st_dev for bind in watched))
    cause = _exceeded_limit(taken, limits)
    for bind in watched:
        extent = measure(bind.root)
        extent.bytes += taken.unlinked_bytes
        room[bind.name] = _room(bind, extent.bytes)
        written = before[bind.name] - free[bind.name]
        is_disk_full = free[bind.name] < DISK_RESERVE_BYTES and written > bind.bytes_max
        if cause is None and (bind.is_passed_by(extent) or is_disk_full):
            cause = "disk"
    return _Measurement(cause, room, free)


def _exceeded_limit(taken: Taken, limits: CommandLimits) -> Cause | None:
    if taken.processes > limits.processes:
        return "processes"
    return "memory" if taken.memory_bytes > limits.memory_bytes else None


def _room(bind: Bind, taken_bytes: int) -> int:
    return max(bind.bytes_max, bind.taken.bytes) - taken_bytes


def _free(bind: Bind) -> int:
    status = os.statvfs(bind.root)
    return status.f_bavail * status.f_frsize
