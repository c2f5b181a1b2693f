"""No sandbox: nothing is run, and whoever asks is told why."""

from __future__ import annotations

from harness.sandboxes.port import CommandResult, Confinement, SandboxCommand
from workspaces.errors import Unavailable


class NoSandbox:
    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self._confinement = Confinement(False, reason, remedy)

    async def check(self) -> Confinement:
        return self._confinement

    async def run(self, order: SandboxCommand) -> CommandResult:
        del order
        raise self._refusal()

    async def attach(self, order: SandboxCommand) -> int:
        del order
        raise self._refusal()

    def _refusal(self) -> Unavailable:
        found = self._confinement
        return Unavailable("the sandbox", found.detail, remedy=found.remedy)
