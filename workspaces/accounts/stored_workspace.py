"""The record of a workspace as it is stored, for a command that only opens the workspace.

The record was validated when it was written. So the command reads three of its fields, and does not wait for
the library that validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workspaces.ids import WorkspaceId
from workspaces.quota_limits import QUOTA_BYTES, QUOTA_FILE_BYTES, QUOTA_FILES

if TYPE_CHECKING:
    from workspaces.workspace_record import WorkspaceRecord


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """The limits as they are stored. A limit that nobody set has its default."""

    bytes: int
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class StoredWorkspace:
    """The stored JSON of a workspace record."""

    value: Mapping[str, Any]

    @property
    def id(self) -> WorkspaceId:
        return WorkspaceId(self.value["id"])

    @property
    def name(self) -> str:
        return self.value["name"]

    @property
    def is_shared(self) -> bool:
        return self._part("storage").get("provider") == "s3"

    @property
    def quota(self) -> StoredQuota:
        quota = self._part("quota")
        return StoredQuota(
            quota.get("bytes", QUOTA_BYTES),
            quota.get("files", QUOTA_FILES),
            quota.get("fileBytes", QUOTA_FILE_BYTES),
        )

    def whole(self) -> WorkspaceRecord:
        """Return the record with all its fields.

        Raises: Refused if the stored record is invalid.
        """
        from workspaces.validation import parse
        from workspaces.workspace_record import WorkspaceRecord

        return parse(WorkspaceRecord, self.value, within=f"workspace {self.id}")

    def _part(self, name: str) -> Mapping[str, Any]:
        return self.value.get("config", {}).get(name, {})


def is_private(workspace_id: WorkspaceId) -> bool:
    """Return True for the memory of an agent or user. No caller can make such an id."""
    return ":" in workspace_id
