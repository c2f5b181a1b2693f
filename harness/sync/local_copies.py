"""Copies: which workspaces lie on this machine, or are to, for whoever keeps them the same and watches them.

All of them do, but one that agents mount only to read it in S3, as long as nothing of it lies here. Whoever
opens it makes a place for it, and from then on it is kept up like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.agents.catalog import AgentCatalog
from workspaces.home.workspaces import Workspaces
from workspaces.ids import WorkspaceId
from workspaces.workspace.workspace import WorkspaceRecord


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """Of one account."""

    workspaces: Workspaces
    agents: AgentCatalog | None = None
    """None: whatever agents may mount."""

    def records(self) -> list[WorkspaceRecord]:
        """Private ones too."""
        there = self.agents.only_read_in_place() if self.agents else frozenset[WorkspaceId]()
        return [
            record
            for record in self.workspaces.list(private=True)
            if record.id not in there or not record.is_shared or self.workspaces.has_copy(record)
        ]
