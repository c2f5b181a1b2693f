"""The port of sandboxes: run a program that may touch some directories and nothing else.

An order names the directories, which appear at `/workspaces/<name>` (`/workspace` is a link to the
first), the program, and its bounds. Whatever the program started is dead when the answer is given: at
its end, at a bound, or when the caller is cancelled. What it had printed until then is in the answer.

No adapter ever runs a program with less than what it promised: one that cannot confine here and now
says so in `check`, and refuses in `run`. The contract is executed by tests/harness/sandboxes/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from harness.sandboxes.output_capture import Captured
from workspaces.localfs.permissions import DiskUsage

Cause = Literal["exit", "time", "memory", "processes", "disk", "output"]
"""What ended a program: itself, or a bound."""

OUTPUT_BYTES_MAX = 64 * 2**20
"""A program that prints more is ended: nobody will read it, and reading it costs the server."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory as the program sees it."""

    name: str
    root: Path
    is_writable: bool
    bytes_max: int
    """What it may take of the disk before the program is ended."""
    entries_max: int
    taken: DiskUsage = field(default_factory=DiskUsage)
    """What it takes before the program begins."""

    @property
    def is_full(self) -> bool:
        """Whether it takes more than it may already. A program may then only remove."""
        taken = self.taken
        return taken.bytes > self.bytes_max or taken.entries > self.entries_max or taken.is_opaque

    def is_passed_by(self, now: DiskUsage) -> bool:
        """Whether a program must be ended: more is taken than may be, and more than before it began."""
        taken = self.taken
        return (
            now.bytes > max(self.bytes_max, taken.bytes)
            or now.entries > max(self.entries_max, taken.entries)
            or (now.is_opaque and not taken.is_opaque)
        )


@dataclass(frozen=True, slots=True)
class CommandLimits:
    seconds: float | None
    """None: as long as a person wants."""
    memory_bytes: int
    processes: int
    shown_bytes: int = 64 * 1024
    """How much of the output is shown at once; the rest of it can be read afterwards."""


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    argv: tuple[str, ...]
    binds: tuple[Bind, ...]
    directory: str
    """The name of the bind that it starts in."""
    bounds: CommandLimits
    network: Literal["none", "host"] = "none"
    programs: tuple[Path, ...] = ()
    """Of the host, to be found at `/programs/<name>`: ours, not the model's."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    cause: Cause
    code: int
    """The exit code, 128 + the number of the signal that ended it."""
    output: Captured
    """Standard output and standard error, as they came."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Whether programs can be confined here and now."""

    works: bool
    detail: str
    """How, or why not."""
    remedy: str | None = None
    """What would help, also where it works and has a fault."""

    @property
    def is_faultless(self) -> bool:
        return self.works and self.remedy is None


class Sandbox(Protocol):
    """Safe to use from several tasks of one event loop."""

    async def check(self) -> Confinement:
        """The self-test. Once it was passed later calls repeat the answer."""
        ...

    async def run(self, order: SandboxCommand) -> CommandResult:
        """Unavailable where `check` says no, and when the program could not be started."""
        ...

    async def attach(self, order: SandboxCommand) -> int:
        """The same with the caller's own standard streams, for a person at a terminal; the code."""
        ...
