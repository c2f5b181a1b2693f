"""The port to the one truth for conditions, where several machines share the files of a workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from workspaces.paths import WorkspacePath
from workspaces.problem import Problem


class Remote(Protocol):
    """What is decided there holds for every machine."""

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        """Make it so there, if there is what was last agreed on. Conflict, Unavailable. What is returned
        is called when the file here has followed."""
        ...

    def refresh(self, path: WorkspacePath) -> None:
        """Bring what is there."""
        ...

    def problems(self) -> list[Problem]:
        """What is there and could not be brought here, as far as it was looked at."""
        ...
