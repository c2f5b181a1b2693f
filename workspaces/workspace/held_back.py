"""Hold back files that hold a forbidden text.

A program that knows nothing of this package may write such a text: a shell, an editor. The file stays on this
disk as it is. No revision takes it, it is sent nowhere, and it is a problem with the path and the line. For
every reader its newest version in the history counts, until somebody takes the text out of the file.
"""

from __future__ import annotations

from workspaces.errors import ForbiddenText, NotFound, forbidden_lines
from workspaces.history.git.objects import ObjectId, blob_id
from workspaces.history.history import History
from workspaces.ids import version_of
from workspaces.paths import WorkspacePath
from workspaces.problem import Problem
from workspaces.tree.scan import FileState, HeldBack
from workspaces.workspace.protection import ForbiddenGate


class HeldBackFiles:
    """The files of one workspace that are held back."""

    def __init__(self, gate: ForbiddenGate, history: History) -> None:
        self._gate = gate
        self._history = history

    def version(self) -> int:
        """Return a number that changes with what is forbidden. 0: nothing is."""
        return self._gate.version()

    def __call__(self, name: str, data: bytes, state: FileState) -> HeldBack | None:
        """Return the problem of a file that a scan has read, with its last kept state, or None."""
        kept = self._kept(name)
        if kept == state.object_id:
            return None
        before = None if kept is None else self._history.read(kept)
        places = self._gate.changed(name, before, data, take_pass=False)
        if not places:
            return None
        problem = Problem(name, "forbidden", forbidden_lines(places), tuple(places))
        if kept is None or before is None:
            return HeldBack(problem, None)
        return HeldBack(problem, FileState(version_of(before), kept, len(before)))

    def refusal(self, path: WorkspacePath, data: bytes | None) -> ForbiddenText | None:
        """Return the reason why a changed file cannot become a revision, or None. A text that may pass once
        has then passed."""
        if data is None:
            return None
        kept = self._kept(path)
        before = None if kept is None else self._history.read(kept)
        places = self._gate.changed(path, before, data, take_pass=True)
        return ForbiddenText(path, places, is_here=True) if places else None

    def readable(self, path: WorkspacePath, data: bytes) -> bytes:
        """Return the content of a file that counts for readers.

        Raises: NotFound for a file that is held back and has no version in the history.
        """
        if not self._gate.version():
            return data
        kept = self._kept(path)
        if kept == blob_id(data):
            return data
        before = None if kept is None else self._history.read(kept)
        if not self._gate.changed(path, before, data, take_pass=False):
            return data
        if before is None:
            raise NotFound("file", path)
        return before

    def _kept(self, name: str) -> ObjectId | None:
        return self._history.find(self._history.tip(), WorkspacePath(name))
