"""The record that says where and how commands of an agent run, and whether its mounts are writable."""

from __future__ import annotations

from typing import Literal

from workspaces.catalog import Family
from workspaces.configuration import Name
from workspaces.ids import SandboxId
from workspaces.parse import Shape
from workspaces.stamp import Stamp


class SandboxConfig(Shape):
    mode: Literal["rw", "ro"] = "rw"
    network: Literal["none", "host"] = "none"


class SandboxRecord(Shape):
    id: SandboxId
    name: Name
    config: SandboxConfig = SandboxConfig()
    created_at: Stamp
    updated_at: Stamp


SANDBOXES = Family("sandbox", "sb", SandboxRecord)
