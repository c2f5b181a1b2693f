"""The progress and the result of a sync."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workspaces.durability import Durable
from workspaces.errors import Failure
from workspaces.problem import Problem

OnSyncProgress = Callable[[int, int], None]
"""A callback with the number of finished actions and the number of all actions."""


@dataclass(slots=True)
class SyncReport:
    """The result of a sync."""

    pushed: list[str] = field(default_factory=list[str])
    pulled: list[str] = field(default_factory=list[str])
    """Paths changed here. `pushed` and `pulled` both include deletions."""
    merged: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    """Paths of the second files that sync created."""
    refused: list[Problem] = field(default_factory=list[Problem])
    unsent: set[str] = field(default_factory=set[str])
    """Paths among `refused` that are here and not in the store. The store rejects the file, or holds an
    object in its place that cannot be kept here."""
    pending: list[str] = field(default_factory=list[str])
    """Paths that others changed faster than sync could apply the changes. The next sync continues with
    them."""
    requests: int = 0
    history: bool = False
    """True if every revision that was here when the files were sent is in the store."""
    unfollowed: Failure | None = None
    """The problem with the history in the store. The history is then neither followed nor extended."""
    mended: list[str] = field(default_factory=list[str])
    """Damaged packs that were written anew."""

    @property
    def is_durable(self) -> bool:
        """Return True if all files on this machine are in the store."""
        return not self.pending and not self.unsent

    @property
    def durable(self) -> Durable:
        return Durable.of(files=self.is_durable, history=self.history)


class SyncProgress:
    def __init__(self, on_progress: OnSyncProgress, total: int) -> None:
        self._on_progress = on_progress
        self._total = total
        self._done = 0

    def done(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done, self._total)
