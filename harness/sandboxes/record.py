"""The record that says where and how commands of an agent run, and whether its mounts are writable."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workspaces.accounts.record_catalog import RecordKind
from workspaces.ids import SandboxId
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

SECONDS_MAX = 600
"""A turn has a person waiting for it."""

MEMORY_BYTES_HIGHEST = 64 * 2**30
"""All that a large server has."""

PROCESSES_HIGHEST = 4096
"""Each is looked at several times a second."""

OUTPUT_BYTES_HIGHEST = 2**20
"""More than a model's context takes."""


class SandboxLimits(StrictModel):
    """Of one command."""

    seconds: Annotated[int, Field(ge=1, le=SECONDS_MAX)] = SECONDS_MAX
    memory_bytes: Annotated[int, Field(ge=64 * 2**20, le=MEMORY_BYTES_HIGHEST)] = 2**30
    """All its processes together: what a small server can spare."""
    processes: Annotated[int, Field(ge=8, le=PROCESSES_HIGHEST)] = 64
    """Threads count. Enough for a pipeline or a test run, and no fork bomb is felt outside."""
    output_bytes: Annotated[int, Field(ge=1024, le=OUTPUT_BYTES_HIGHEST)] = 64 * 1024
    """How much of what it prints the model is shown at once."""


class SandboxConfig(StrictModel):
    mode: Literal["rw", "ro"] = "rw"
    network: Literal["none", "host"] = "none"
    limits: SandboxLimits = SandboxLimits()
    permission: Literal["bypass", "ask"] = "bypass"
    """Whether a person is asked before commands and writes."""


class SandboxRecord(StrictModel):
    id: SandboxId
    name: Name
    config: SandboxConfig = SandboxConfig()
    created_at: Stamp
    updated_at: Stamp


SANDBOXES = RecordKind("sandbox", "sb", SandboxRecord)
