"""What a sync tells: of what it is doing, and of what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workspaces.durability import Durable
from workspaces.errors import Failure
from workspaces.problem import Problem

OnSyncProgress = Callable[[int, int], None]
"""How many of how many are done."""


@dataclass(slots=True)
class SyncReport:
    """What a sync did."""

    pushed: list[str] = field(default_factory=list[str])
    pulled: list[str] = field(default_factory=list[str])
    """Deletions are among both."""
    merged: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    """The second files that were made."""
    refused: list[Problem] = field(default_factory=list[Problem])
    unsent: set[str] = field(default_factory=set[str])
    """Of these, what is here and not there: the store does not take it, or has in its place what cannot be
    kept here."""
    pending: list[str] = field(default_factory=list[str])
    """What others changed faster than it could be carried out: the next sync goes on."""
    requests: int = 0
    history: bool = False
    """Whether every revision that was here when the files had gone is there."""
    unfollowed: Failure | None = None
    """What is wrong with the history there: it is neither followed nor added to."""
    mended: list[str] = field(default_factory=list[str])
    """Packs that were damaged, and made anew."""

    @property
    def is_durable(self) -> bool:
        """Whether all files that are here are there."""
        return not self.pending and not self.unsent

    @property
    def durable(self) -> Durable:
        return Durable(self.is_durable, self.history)


class SyncProgress:
    def __init__(self, tell: OnSyncProgress, total: int) -> None:
        self._tell = tell
        self._total = total
        self._done = 0

    def done(self, count: int) -> None:
        self._done += count
        self._tell(self._done, self._total)
