"""Gathering what the prompt is made of: the reading half of the context, which itself is pure.

Memory is read from a revision, after what a person changed by hand became one: so the prompt is a
function of revisions that can be named afterwards, whatever happens to the files meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.agent import Mount
from harness.context.assemble import MountView, Part, system_parts
from harness.context.memory import MemoryFile
from harness.template import render
from workspaces.errors import Failure, NotFound

MEMORY = "MEMORY.md"


def brief(instructions: str | None, mounts: Sequence[Mount]) -> list[Part]:
    """The parts of the system prompt, as of now."""
    found = [memory for mount in mounts if (memory := _memory(mount)) is not None]
    default = next((mount for mount in mounts if not mount.is_private), None)
    views = [_view(mount, is_default=mount is default) for mount in mounts]
    return system_parts(instructions, views, found, render)


def _memory(mount: Mount) -> MemoryFile | None:
    """None when there is no MEMORY.md: that is no failure. Anything else must not stop the turn."""
    try:
        revision = mount.workspace.settle()
        if revision is None:
            return None
        return MemoryFile(mount.name, mount.workspace.read(MEMORY, view=revision).text)
    except NotFound:
        return None
    except Failure as failure:
        return MemoryFile(mount.name, "", unavailable=str(failure))


def _view(mount: Mount, *, is_default: bool) -> MountView:
    record = mount.workspace.record
    return MountView(
        mount.name,
        mount.is_writable,
        record.description or "",
        record.config.harness.enabled,
        is_default,
    )
