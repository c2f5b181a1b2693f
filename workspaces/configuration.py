"""The record of a workspace and what can be configured in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workspaces.ids import WorkspaceId
from workspaces.parse import Shape
from workspaces.stamp import Stamp

NAME_CHARACTERS_MAX = 100
DESCRIPTION_CHARACTERS_MAX = 1000

Name = Annotated[
    str,
    Field(
        strict=True, min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=r"^[^\x00-\x1f\x7f]+$"
    ),
]
"""A name that a person gives and types: one line."""

Description = Annotated[str, Field(max_length=DESCRIPTION_CHARACTERS_MAX)]


class Storage(Shape):
    provider: Literal["local", "s3"] = "local"


class Guidance(Shape):
    enabled: bool = True
    """Tell the agent how to keep MEMORY.md, TASKS.md and notes/."""


class MemoryLimit(Shape):
    max_length: Annotated[int, Field(ge=1, le=500_000)] | None = None


class Quota(Shape):
    """What one workspace may hold; what exceeds it stays on disk, out of history and sync."""

    bytes: Annotated[int, Field(ge=1)] = 50_000_000
    files: Annotated[int, Field(ge=1)] = 10_000
    file_bytes: Annotated[int, Field(ge=1, le=64 * 2**20)] = 5_000_000


class WorkspaceConfig(Shape):
    storage: Storage = Storage()
    harness: Guidance = Guidance()
    memory: MemoryLimit = MemoryLimit()
    quota: Quota = Quota()


class WorkspaceRecord(Shape):
    id: WorkspaceId
    name: Name
    description: Description | None = None
    config: WorkspaceConfig = WorkspaceConfig()
    created_at: Stamp
    updated_at: Stamp

    @property
    def is_shared(self) -> bool:
        """Whether its files are kept in S3, for other machines too."""
        return self.config.storage.provider == "s3"
