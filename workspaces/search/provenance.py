"""Find the author and the time of a line that recall has found.

The line origins know both for each line of the newest revision. The file in the tree may be newer. So the
file is compared with the revision's version, and a line that both have belongs to the revision. A line that
is in no revision yet has no author and no stamp.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from workspaces.errors import NotFound
from workspaces.history.git.commit import Commit
from workspaces.history.history import HEAD, History, View
from workspaces.history.line_matching import shared, split_lines
from workspaces.history.line_origins import LineOrigins
from workspaces.paths import WorkspacePath
from workspaces.revision import RevisionId
from workspaces.search.source import TextSource
from workspaces.timestamp import Stamp


@dataclass(frozen=True, slots=True)
class LineSource:
    """The revision that wrote a line."""

    commit: Commit
    at: Stamp
    """The stamp of the revision, as far as it was believable when this machine first saw the revision."""


class Provenance:
    """The sources of the lines of one view, for one query. Each file is read once."""

    def __init__(
        self, history: History, origins: LineOrigins, view: View, source: TextSource
    ) -> None:
        self._history = history
        self._origins = origins
        self._view = view
        self._source = source
        self._files: dict[str, Sequence[RevisionId | None]] = {}
        self._known: dict[RevisionId, LineSource] = {}

    def of(self, path: str, line: int, lines: int) -> LineSource | None:
        """Return the newest revision that wrote one of `lines` lines, starting at `line`. Return None if one
        of them is in no revision yet."""
        if path not in self._files:
            self._files[path] = self._revisions(WorkspacePath(path))
            self._load({one for one in self._files[path] if one is not None})
        revisions = self._files[path][line - 1 : line - 1 + lines]
        known = [self._known[revision] for revision in revisions if revision is not None]
        if not known or len(known) < len(revisions):
            return None
        return max(known, key=lambda origin: origin.commit.place)

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
        revisions: list[RevisionId | None] = [None] * len(present)
        for old, new in shared(recorded, present):
            if old < len(origins):  # else another process made a revision between the two reads
                revisions[new] = origins[old]
        return revisions

    def _load(self, revisions: Set[RevisionId]) -> None:
        new = revisions - self._known.keys()
        stamps = self._origins.stamps(new) if new else {}
        for revision in new:
            commit = self._history.commit(revision)
            at = stamps.get(revision) or self._history.believable(commit.at)
            self._known[revision] = LineSource(commit, at)
