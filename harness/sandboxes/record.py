"""The sandbox record: where and how an agent's commands run, and whether its mounts are writable."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workspaces.accounts.record_catalog import RecordKind
from workspaces.ids import SandboxId
from workspaces.timestamp import Stamp
from workspaces.validation import StrictModel
from workspaces.workspace_record import Name

SECONDS_MAX = 600
"""The longest time limit: a person waits for the turn."""

MEMORY_BYTES_HIGHEST = 64 * 2**30
"""The highest memory limit: all that a large server has."""

PROCESSES_HIGHEST = 4096
"""The highest limit of processes: each is measured several times a second."""

OUTPUT_BYTES_HIGHEST = 2**20
"""The highest limit of shown output: more than a model's context holds."""


class SandboxLimits(StrictModel):
    """The limits of one command."""

    seconds: Annotated[int, Field(ge=1, le=SECONDS_MAX)] = SECONDS_MAX
    """Seconds that a command may take."""
    memory_bytes: Annotated[int, Field(ge=64 * 2**20, le=MEMORY_BYTES_HIGHEST)] = 2**30
    """The memory of all its processes together: as much as a small server can spare."""
    processes: Annotated[int, Field(ge=8, le=PROCESSES_HIGHEST)] = 64
    """The number of processes, threads included. It suffices for a pipeline or a test run, and a fork bomb
    has no effect outside."""
    output_bytes: Annotated[int, Field(ge=1024, le=OUTPUT_BYTES_HIGHEST)] = 64 * 1024
    """Bytes of the output that the model is shown at once."""


class SandboxConfig(StrictModel):
    mode: Literal["rw", "ro"] = "rw"
    """Whether mounts are writable."""
    network: Literal["none", "host"] = "none"
    """Whether commands reach the network of this machine."""
    limits: SandboxLimits = SandboxLimits()
    permission: Literal["bypass", "ask"] = "bypass"
    """Whether a person must approve each command and each write (`ask`)."""


class SandboxRecord(StrictModel):
    id: SandboxId
    name: Name
    config: SandboxConfig = SandboxConfig()
    created_at: Stamp
    updated_at: Stamp


SANDBOXES = RecordKind("sandbox", "sb", SandboxRecord)
