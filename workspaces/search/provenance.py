"""Who wrote a line that was found, and when.

The history says it of each line of the newest revision; what lies in the tree may be newer than that.
So the file is laid beside what the revision has, and a line that both have is the revision's. What is in
no revision yet has no author and no stamp.
"""

from __future__ import annotations

from collections.abc import Sequence

from workspaces.errors import NotFound
from workspaces.history.commit import Commit
from workspaces.history.history import HEAD, History, View
from workspaces.history.lines import shared, split_lines
from workspaces.history.origins import Origins
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.search.source import Source


class Provenance:
    """Of the lines of one view, for one question: every file is looked at once."""

    def __init__(self, history: History, origins: Origins, view: View, source: Source) -> None:
        self._history = history
        self._origins = origins
        self._view = view
        self._source = source
        self._files: dict[str, Sequence[RevisionId | None]] = {}
        self._commits: dict[RevisionId, Commit] = {}

    def of(self, path: str, line: int, lines: int) -> Commit | None:
        """The newest revision that wrote one of `lines` lines from `line` on; None when one of them is
        in no revision yet."""
        if path not in self._files:
            self._files[path] = self._revisions(WorkspacePath(path))
        wrote = self._files[path][line - 1 : line - 1 + lines]
        known = [self._commit(revision) for revision in wrote if revision is not None]
        if not known or len(known) < len(wrote):
            return None
        return max(known, key=lambda commit: commit.at)

    def _revisions(self, path: WorkspacePath) -> Sequence[RevisionId | None]:
        if self._view != HEAD:
            return [line.revision for line in self._history.blame(path, self._view)]
        try:
            origins = self._origins.origins(path)
        except NotFound:
            return []
        blob = self._history.find(self._history.tip(), path)
        recorded = split_lines(self._history.read(blob)) if blob else []
        present = split_lines(self._source.read(path) or b"")
        if present == recorded and len(origins) == len(recorded):
            return origins
        found: list[RevisionId | None] = [None] * len(present)
        for old, new in shared(recorded, present):
            if old < len(origins):  # else a revision came between the two looks
                found[new] = origins[old]
        return found

    def _commit(self, revision: RevisionId) -> Commit:
        if revision not in self._commits:
            self._commits[revision] = self._history.commit(revision)
        return self._commits[revision]
