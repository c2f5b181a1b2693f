"""The memory of a mount that is read directly from S3: MEMORY.md as it is now, and the index of its notes.

There is no local history and so no revision. The version of MEMORY.md, which is the same on every machine,
identifies the state that a part was read from. Without line origins the lower line counts as the newer one.
Notes are as new as S3 reports.
"""

from __future__ import annotations

from harness.context.memory_entry import first_heading
from harness.context.memory_parts import MEMORY, NOTES, NOTES_MAX, Memory, Note
from workspaces.errors import NotFound
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.revision import RevisionId


def remote_memory(mount: str, workspace: RemoteWorkspace) -> Memory | None:
    """Return the memory of the mount, or None if there is no MEMORY.md.

    Raises: Unavailable if S3 cannot be reached. OverLimit if MEMORY.md is too large.
    """
    try:
        file = workspace.read(MEMORY)
    except NotFound:
        return None
    notes = workspace.find(NOTES, lambda name: name.endswith(".md"))
    notes.sort(key=lambda stat: (-(stat.modified or 0), stat.name))
    shown = notes[:NOTES_MAX]
    glances = workspace.glance(shown)
    return Memory(
        mount,
        file.text,
        RevisionId(file.version),
        notes=tuple(
            Note(stat.name, None if data is None else first_heading(data))
            for stat, data in zip(shown, glances, strict=True)
        ),
        notes_count=len(notes),
        characters_max=workspace.record.config.memory.max_length,
    )
