"""The sandbox port: runs a program that can use some directories and nothing else.

A command names the directories, which appear at `/workspaces/<name>` (`/workspace` is a link to the first),
the program, and its limits. When the result is returned, every process of the program is dead: at its end, at
a limit, or when the caller is cancelled. The result contains the output until then.

No adapter ever runs a program with less confinement than it promised. An adapter that cannot confine on this
machine says so in `check` and refuses in `run`. The contract is executed by tests/harness/sandboxes/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from harness.sandboxes.output_capture import Captured
from workspaces.localfs.permissions import DiskUsage

Cause = Literal["exit", "time", "memory", "processes", "disk", "output"]
"""The cause of a program's end: its own exit, or a limit."""

OUTPUT_BYTES_MAX = 64 * 2**20
"""The most output. A program that prints more is ended: no reader wants it, and reading it costs the
server."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory as the program sees it."""

    name: str
    root: Path
    is_writable: bool
    bytes_max: int
    """Bytes that the directory may take before the program is ended."""
    entries_max: int
    taken: DiskUsage = field(default_factory=DiskUsage)
    """The disk usage before the program begins."""

    @property
    def is_full(self) -> bool:
        """Return True if the directory already exceeds its limit. Then a program may only remove files."""
        taken = self.taken
        return taken.bytes > self.bytes_max or taken.entries > self.entries_max or taken.is_opaque

    def is_passed_by(self, now: DiskUsage) -> bool:
        """Return True if a program must be ended: the usage exceeds the limit and also the usage before it
        began."""
        taken = self.taken
        return (
            now.bytes > max(self.bytes_max, taken.bytes)
            or now.entries > max(self.entries_max, taken.entries)
            or (now.is_opaque and not taken.is_opaque)
        )


@dataclass(frozen=True, slots=True)
class CommandLimits:
    seconds: float | None
    """The time limit; None means no limit, for a person at a terminal."""
    memory_bytes: int
    processes: int
    shown_bytes: int = 64 * 1024
    """Bytes of the output that are shown at once; the rest can be read afterwards."""


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    argv: tuple[str, ...]
    binds: tuple[Bind, ...]
    directory: str
    """The name of the bind that the program starts in."""
    limits: CommandLimits
    network: Literal["none", "host"] = "none"
    programs: tuple[Path, ...] = ()
    """Programs of the host that appear at `/programs/<name>`: ours, not the model's."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    cause: Cause
    code: int
    """The exit code, or 128 + the number of the signal that ended the program."""
    output: Captured
    """Standard output and standard error, in the order in which they arrived."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The finding whether programs can be confined on this machine now."""

    works: bool
    detail: str
    """The way they are confined, or the reason why they cannot be."""
    remedy: str | None = None
    """A remedy; also given if confinement works but has a fault."""

    @property
    def is_faultless(self) -> bool:
        return self.works and self.remedy is None


class Sandbox(Protocol):
    """A sandbox. Several tasks of one event loop may share it."""

    async def check(self) -> Confinement:
        """Run the self-test. Once it has passed, later calls repeat the result."""
        ...

    async def run(self, command: SandboxCommand) -> CommandResult:
        """Run a command.

        Raises: Unavailable if `check` fails, or if the program cannot be started.
        """
        ...

    async def attach(self, command: SandboxCommand) -> int:
        """Run a command with the caller's own standard streams, for a person at a terminal. Return the exit
        code."""
        ...
