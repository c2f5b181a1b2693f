"""The memory of mounts, as of a revision.

A revision never changes, so the memory of the newest revision is cached. While it is the newest, the next
turn of any conversation reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from harness.context.memory_entry import first_heading
from harness.context.memory_parts import MEMORY, NOTES, NOTES_MAX, Memory, Note
from workspaces.errors import NotFound
from workspaces.file import File
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.workspace.workspace import Workspace

_CONFLICT = re.compile(r"\.conflict-[0-9a-f]{12}\.")
"""Matches the name of a conflict copy: a problem to be solved, not a note."""


class MemoryCache:
    """The cache of memories, for the workspaces that a process has open. Threads may share it."""

    def __init__(self) -> None:
        self._by_workspace: WeakKeyDictionary[Workspace, dict[str, Memory]] = WeakKeyDictionary()
        """Memories by workspace and name of the mount. A changed record of a workspace, for example with
        other limits, gives another Workspace object and so another entry."""

    def at(self, mount: str, workspace: Workspace, revision: RevisionId | None) -> Memory | None:
        """Return the memory of a mount, or None if there is no MEMORY.md, which is no failure."""
        cached = self._by_workspace.setdefault(workspace, {}).get(mount)
        if cached is not None and cached.revision == revision:
            return cached
        memory = _read(mount, workspace, revision)
        if memory is not None and memory.unavailable is None:
            self._by_workspace[workspace][mount] = memory
        return memory

    def is_fresh(self, mount: str, workspace: Workspace) -> bool:
        """Return True if memory has no manual edits since the newest revision, as far as a quick check can
        tell."""
        cached = self._by_workspace.get(workspace, {}).get(mount)
        notes = [note.path for note in cached.notes] if cached else []
        return workspace.edits.is_clean(MEMORY, NOTES, notes)


def _read(mount: str, workspace: Workspace, revision: RevisionId | None) -> Memory | None:
    """Return the memory of a mount, or None if there is no MEMORY.md, which is no failure."""
    version = workspace.history.find(revision, MEMORY)
    if revision is None or version is None:
        return _uncommitted(mount, workspace)
    notes, count = _notes(workspace, revision)
    return Memory(
        mount,
        File(MEMORY, workspace.history.read(version)).text,
        revision,
        notes=notes,
        notes_count=count,
        characters_max=workspace.record.config.memory.max_length,
    )


def _uncommitted(mount: str, workspace: Workspace) -> Memory | None:
    """Return the memory of a mount whose MEMORY.md is in no revision. If the file exists it breaks a rule:
    then it is reported as unavailable, because it must not seem to be missing."""
    try:
        workspace.read(MEMORY)
    except NotFound:
        return None
    reason = "MEMORY.md is not in the history: it is new, or it exceeds a limit"
    return Memory(mount, None, unavailable=reason)


def _notes(workspace: Workspace, revision: RevisionId) -> tuple[tuple[Note, ...], int]:
    """Return the notes that an index may show, and the number of all notes."""
    history = workspace.history
    versions = history.below(revision, NOTES)
    paths = [path for path in versions if path.endswith(".md") and not _CONFLICT.search(path)]
    if len(paths) > NOTES_MAX:
        paths = newest_first(workspace, paths)
    shown = paths[:NOTES_MAX]
    notes = tuple(Note(path, first_heading(history.read(versions[path]))) for path in shown)
    return notes, len(paths)


def newest_first(workspace: Workspace, paths: Sequence[WorkspacePath]) -> list[WorkspacePath]:
    updated = workspace.origins.updates(NOTES)
    return sorted(sorted(paths), key=lambda path: updated.get(path, ""), reverse=True)
