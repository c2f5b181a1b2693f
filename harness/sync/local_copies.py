"""The workspaces that have, or shall have, their files on this machine; these are synced and watched.

Every workspace has, except one that agents mount only to read it in place in S3 and that has no files here.
Opening such a workspace creates its directory. From then on it is synced and watched like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.agents.catalog import AgentCatalog
from workspaces.home.workspaces import Workspaces
from workspaces.ids import WorkspaceId
from workspaces.workspace_record import WorkspaceRecord


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """The workspaces of one account that are kept on this machine."""

    workspaces: Workspaces
    agents: AgentCatalog | None = None
    """The agents whose mounts decide. None: every workspace counts, whatever agents may mount."""

    conflict_found: Callable[[WorkspaceId, int], None] | None = None
    """Is told of the conflict files that a sync created."""

    def records(self) -> list[WorkspaceRecord]:
        """Return the records of these workspaces, private ones too."""
        read_in_place = (
            self.agents.only_read_in_place() if self.agents else frozenset[WorkspaceId]()
        )
        return [
            record
            for record in self.workspaces.list(private=True)
            if record.id not in read_in_place
            or not record.is_shared
            or self.workspaces.has_copy(record)
        ]
