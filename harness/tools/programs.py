"""What tools run programs with: a sandbox, where there is one, and ripgrep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.sandboxes.port import Sandbox


@dataclass(frozen=True, slots=True)
class ToolPrograms:
    sandbox: Sandbox | None
    """One whose self-test said that it confines, here and now."""
    ripgrep: Path | None


NO_WORKSHOP = ToolPrograms(None, None)
