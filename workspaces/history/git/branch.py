"""The branch: the one ref of a history, moved by compare-and-swap.

The ref file is replaced under git's own lock name, so that any other git sees one revision or the next.
"""

from __future__ import annotations

import os
from pathlib import Path

from workspaces.errors import Conflict
from workspaces.history.git.objects import sync, unwritable
from workspaces.revision import RevisionId

NAME = "refs/heads/main"


class Branch:
    """The ref `refs/heads/main` of one git directory."""

    def __init__(self, git_directory: Path) -> None:
        self._file = git_directory / NAME

    def tip(self) -> RevisionId | None:
        """Return the newest revision, or None before the first."""
        try:
            with open(self._file, "rb", buffering=0) as stream:  # noqa: PTH123 - the hot path
                return RevisionId(stream.read().decode().strip())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unwritable(error) from error

    def move(self, revision: RevisionId, *, expect: RevisionId | None) -> None:
        """Move the branch from `expect` to `revision`, durably. The caller holds the writer lock.

        A ref lock that a killed process left is removed: its owner cannot be alive, because the caller
        holds the writer lock.

        Raises: Conflict when the branch is not at `expect`."""
        lock = self._file.with_name(f"{self._file.name}.lock")
        try:
            lock.unlink(missing_ok=True)
            with lock.open("x") as stream:
                actual = self.tip()
                if actual != expect:
                    raise Conflict("history", self._file.name, expected=expect, actual=actual)
                stream.write(f"{revision}\n")
                stream.flush()
                os.fsync(stream.fileno())
            lock.rename(self._file)
            sync(self._file.parent)
        except OSError as error:
            raise unwritable(error) from error
