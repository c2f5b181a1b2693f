"""What a mount remembers that is read in S3: its MEMORY.md as it is there now, and the index of its notes.

There is no history to read a revision from: what a part was read from is named by the version of MEMORY.md,
which is the same on every machine. Without line origins the lower line counts as the newer one; notes are as
new as S3 says.
"""

from __future__ import annotations

from harness.context.memory_entry import first_heading
from harness.context.memory_parts import MEMORY, NOTES, NOTES_MAX, Memory, Note
from workspaces.errors import NotFound
from workspaces.remote.remote_workspace import RemoteWorkspace
from workspaces.revision import RevisionId


def remote_memory(mount: str, workspace: RemoteWorkspace) -> Memory | None:
    """None when there is no MEMORY.md. Unavailable, OverLimit."""
    try:
        file = workspace.read(MEMORY)
    except NotFound:
        return None
    found = workspace.find(NOTES, lambda name: name.endswith(".md"))
    found.sort(key=lambda stat: (-(stat.modified or 0), stat.name))
    shown = found[:NOTES_MAX]
    glances = workspace.glance(shown)
    return Memory(
        mount,
        file.text,
        RevisionId(file.version),
        notes=tuple(
            Note(stat.name, None if data is None else first_heading(data))
            for stat, data in zip(shown, glances, strict=True)
        ),
        notes_count=len(found),
        characters_max=workspace.record.config.memory.max_length,
    )
