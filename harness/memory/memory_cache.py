"""What mounts remember, as of a revision.

A revision never changes: what was read of the newest one is kept, so that the next turn, of whomever, reads
nothing as long as it is the newest.
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
"""In the name of what could not be merged: a problem to be solved, no note."""


class MemoryCache:
    """Of the workspaces that a process has open, those that were read last. Threads may share it."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Workspace, dict[str, Memory]] = WeakKeyDictionary()
        """By the name of the mount. Another record of a workspace, as after a change of its limits, is
        another object."""

    def at(self, mount: str, workspace: Workspace, revision: RevisionId | None) -> Memory | None:
        """None when there is no MEMORY.md: that is no failure."""
        kept = self._kept.setdefault(workspace, {}).get(mount)
        if kept is not None and kept.revision == revision:
            return kept
        found = _read(mount, workspace, revision)
        if found is not None and found.unavailable is None:
            self._kept[workspace][mount] = found
        return found

    def is_fresh(self, mount: str, workspace: Workspace) -> bool:
        """Whether nobody has changed by hand what the newest revision has of it, as far as a glance
        tells."""
        kept = self._kept.get(workspace, {}).get(mount)
        notes = [note.path for note in kept.notes] if kept else []
        return workspace.is_clean(MEMORY, NOTES, notes)


def _read(mount: str, workspace: Workspace, revision: RevisionId | None) -> Memory | None:
    """None when there is no MEMORY.md: that is no failure."""
    found = workspace.history.find(revision, MEMORY)
    if revision is None or found is None:
        return _not_kept(mount, workspace)
    notes, count = _notes(workspace, revision)
    return Memory(
        mount,
        File(MEMORY, workspace.history.read(found)).text,
        revision,
        notes=notes,
        notes_count=count,
        characters_max=workspace.record.config.memory.max_length,
    )


def _not_kept(mount: str, workspace: Workspace) -> Memory | None:
    """A MEMORY.md that is there and in no revision breaks a rule: then it must not seem to be missing."""
    try:
        workspace.read(MEMORY)
    except NotFound:
        return None
    reason = "MEMORY.md is not part of the history: it is new, or breaks a limit"
    return Memory(mount, None, unavailable=reason)


def _notes(workspace: Workspace, revision: RevisionId) -> tuple[tuple[Note, ...], int]:
    """Those that an index may show, and how many there are."""
    history = workspace.history
    found = history.below(revision, NOTES)
    paths = [path for path in found if path.endswith(".md") and not _CONFLICT.search(path)]
    if len(paths) > NOTES_MAX:
        paths = newest_first(workspace, paths)
    shown = paths[:NOTES_MAX]
    notes = tuple(Note(path, first_heading(history.read(found[path]))) for path in shown)
    return notes, len(paths)


def newest_first(workspace: Workspace, paths: Sequence[WorkspacePath]) -> list[WorkspacePath]:
    changed = workspace.origins.updates(NOTES)
    return sorted(sorted(paths), key=lambda path: changed.get(path, ""), reverse=True)
