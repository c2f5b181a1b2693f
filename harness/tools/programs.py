"""The programs that tools run: a sandbox, if there is one, and ripgrep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.sandboxes.port import Sandbox


@dataclass(frozen=True, slots=True)
class ToolPrograms:
    sandbox: Sandbox | None
    """A sandbox whose self-test showed that it confines commands on this machine."""
    ripgrep: Path | None


NO_PROGRAMS = ToolPrograms(None, None)
