"""The record of a workspace and its configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workspaces.errors import Refused
from workspaces.ids import WorkspaceId
from workspaces.quota_limits import QUOTA_BYTES, QUOTA_FILE_BYTES, QUOTA_FILES
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel

NAME_CHARACTERS_MAX = 100
DESCRIPTION_CHARACTERS_MAX = 1000

WORKSPACE_MEMORY_CHARACTERS_MAX = 500_000
"""As large as the largest configurable context."""

QUOTA_BYTES_MAX = 2**40
"""One tebibyte. More is a typing error, and larger than any disk of one machine."""

QUOTA_FILES_MAX = 1_000_000
"""A scan looks at each file: a million files take most of a minute."""

QUOTA_FILE_BYTES_MAX = 64 * 2**20
"""A file is read whole into memory, and several files at once."""

Name = Annotated[
    str,
    Field(
        strict=True, min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]+$"
    ),
]
"""A name that a person gives and types: one line."""

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]


class Storage(StrictModel):
    provider: Literal["local", "s3"] = "local"
    """Where the files are kept: on this machine, or in S3 too, where other machines share them."""


class Guidance(StrictModel):
    enabled: bool = True
    """Tell the agent how to keep MEMORY.md, TASKS.md and notes/."""


class MemoryLimit(StrictModel):
    max_length: Annotated[int, Field(ge=1, le=WORKSPACE_MEMORY_CHARACTERS_MAX)] | None = None
    """Code points of this workspace's memory in a prompt. Absent: the share that its agents have."""


class Quota(StrictModel):
    """The limits of one workspace. Files beyond them stay on disk, outside history and sync.

    `check_change` checks the maxima of `bytes` and `files` when a record is written. A record that was stored
    with larger values opens unchanged.
    """

    bytes: Annotated[int, Field(ge=1, json_schema_extra={"maximum": QUOTA_BYTES_MAX})] = QUOTA_BYTES
    """All files together, in bytes."""
    files: Annotated[int, Field(ge=1, json_schema_extra={"maximum": QUOTA_FILES_MAX})] = QUOTA_FILES
    """The number of files."""
    file_bytes: Annotated[int, Field(ge=1, le=QUOTA_FILE_BYTES_MAX)] = QUOTA_FILE_BYTES
    """One file, in bytes."""

    def check_change(self, before: Quota | None) -> None:
        """Raise Refused for a value above its maximum, unless `before` already had that value."""
        for name, value, known, maximum in (
            ("bytes", self.bytes, before and before.bytes, QUOTA_BYTES_MAX),
            ("files", self.files, before and before.files, QUOTA_FILES_MAX),
        ):
            if value > maximum and value != known:
                rule = f"should be less than or equal to {maximum}"
                raise Refused(f"config.quota.{name}", value, rule)


class WorkspaceConfig(StrictModel):
    storage: Storage = Storage()
    harness: Guidance = Guidance()
    memory: MemoryLimit = MemoryLimit()
    quota: Quota = Quota()


class WorkspaceRecord(StrictModel):
    id: WorkspaceId
    name: Name
    description: Description | None = None
    config: WorkspaceConfig = WorkspaceConfig()
    created_at: Stamp
    updated_at: Stamp

    @property
    def is_shared(self) -> bool:
        """Return True if the files are stored in S3, where other machines can reach them."""
        return self.config.storage.provider == "s3"

    @property
    def quota(self) -> Quota:
        return self.config.quota
