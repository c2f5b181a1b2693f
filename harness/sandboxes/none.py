"""The absent sandbox: runs nothing and tells callers the reason."""

from __future__ import annotations

from harness.sandboxes.port import CommandResult, Confinement, SandboxCommand
from workspaces.errors import Unavailable


class NoSandbox:
    def __init__(self, reason: str, remedy: str | None = None) -> None:
        self._confinement = Confinement(False, reason, remedy)

    async def check(self) -> Confinement:
        return self._confinement

    async def run(self, command: SandboxCommand) -> CommandResult:
        del command
        raise self._refusal()

    async def attach(self, command: SandboxCommand) -> int:
        del command
        raise self._refusal()

    def _refusal(self) -> Unavailable:
        confinement = self._confinement
        return Unavailable("the sandbox", confinement.detail, remedy=confinement.remedy)
