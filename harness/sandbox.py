"""The record that says where and how commands of an agent run, and whether its mounts are writable."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from workspaces.catalog import Family
from workspaces.configuration import Name
from workspaces.ids import SandboxId
from workspaces.parse import Shape
from workspaces.stamp import Stamp

SECONDS_MAX = 600
"""A turn has a person waiting for it."""


class SandboxLimits(Shape):
    """Of one command."""

    seconds: Annotated[int, Field(ge=1, le=SECONDS_MAX)] = SECONDS_MAX
    memory_bytes: Annotated[int, Field(ge=64 * 2**20, le=64 * 2**30)] = 2**30
    """All its processes together: what a small server can spare."""
    processes: Annotated[int, Field(ge=8, le=4096)] = 64
    """Threads count. Enough for a pipeline or a test run, and no fork bomb is felt outside."""
    output_bytes: Annotated[int, Field(ge=1024, le=2**20)] = 64 * 1024
    """How much of what it prints the model is shown at once."""


class SandboxConfig(Shape):
    mode: Literal["rw", "ro"] = "rw"
    network: Literal["none", "host"] = "none"
    limits: SandboxLimits = SandboxLimits()
    permission: Literal["bypass", "ask"] = "bypass"
    """Whether a person is asked before commands and writes."""


class SandboxRecord(Shape):
    id: SandboxId
    name: Name
    config: SandboxConfig = SandboxConfig()
    created_at: Stamp
    updated_at: Stamp


SANDBOXES = Family("sandbox", "sb", SandboxRecord)
