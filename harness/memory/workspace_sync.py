"""The sync of a workspace, for callers that only ask for it. A home that shares nothing imports none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workspaces.sync.engine import Sync
    from workspaces.workspace.workspace import Workspace


def sync_of(workspace: Workspace) -> Sync | None:
    """Return the sync of a shared workspace. None if it is only here, or this home has no bucket."""
    remote = workspace.edits.remote
    if remote is None:
        return None
    from workspaces.sync.engine import Sync

    return remote if isinstance(remote, Sync) else None
