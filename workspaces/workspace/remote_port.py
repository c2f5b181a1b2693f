"""Define the port to the remote that decides conditional writes, if several machines share a workspace's
files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from workspaces.paths import WorkspacePath
from workspaces.problem import Problem


class Remote(Protocol):
    """The remote store. Its decisions hold for every machine."""

    def decide(self, path: WorkspacePath, data: bytes | None) -> Callable[[], None]:
        """Write the file in the remote store if that still has the last agreed version. Return a function
        that the caller calls once the file here has the new content.

        Raises: Conflict when the store has another version, Unavailable when it cannot be reached.
        """
        ...

    def refresh(self, path: WorkspacePath) -> None:
        """Bring the remote version of the file here."""
        ...

    def problems(self) -> list[Problem]:
        """Return the remote files that could not be brought here, as far as the remote was examined."""
        ...
