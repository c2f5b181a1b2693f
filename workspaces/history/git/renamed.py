"""Look up a revision by an id that it had before its history was rewritten.

A rewritten revision names its earlier ids in the trailer `Was` (`rewrite`). So the map from old ids to new
ones is part of the history. It holds no text, every copy of the history has it, and no step can lose it.
"""

from __future__ import annotations

import threading
from pathlib import Path

from workspaces.errors import Unavailable
from workspaces.history.git.program import run_git
from workspaces.revision import RevisionId

_FORMAT = "--format=%x00%H%n%b"
_LINE = "Was: "


class RenamedRevisions:
    """The earlier ids of the revisions of one git directory. Threads may share it."""

    def __init__(self, git_directory: Path) -> None:
        self._git = f"--git-dir={git_directory}"
        self._lock = threading.Lock()
        self._tip: RevisionId | None = None
        self._new_ids: dict[str, RevisionId] = {}

    def find(self, revision: str, tip: RevisionId | None) -> RevisionId | None:
        """Return the revision that had this id, whole or abbreviated. Return None if none had it, or if
        several had."""
        with self._lock:
            if tip is None or tip != self._tip:
                self._read(tip)
            new = self._new_ids.get(revision)
            if new is not None:
                return new
            matching = {self._new_ids[old] for old in self._new_ids if old.startswith(revision)}
        return matching.pop() if len(matching) == 1 else None

    def has_rewritten(self, theirs: RevisionId, tip: RevisionId) -> bool:
        """Return True if `theirs` is what became of `tip`: one of its revisions says that it was one of ours,
        or tells of a text taken out since both had the same. A history with nothing of ours is neither."""
        told = ("-E", "--grep=^Was: [0-9a-f]{40}", "--grep=^Forgot: ", _FORMAT, "--end-of-options")
        new = run_git(self._git, "log", *told, theirs, f"^{tip}", "--").decode(errors="replace")
        if not new:
            return False
        lines = (line for line in new.split("\n") if line.startswith(_LINE))
        were = {old for line in lines for old in line.removeprefix(_LINE).split()}
        ours = run_git(self._git, "rev-list", "--end-of-options", tip, f"^{theirs}", "--")
        if not were.isdisjoint(ours.decode().split()):
            return True
        try:
            return bool(run_git(self._git, "merge-base", tip, theirs))
        except Unavailable:  # they have no revision in common
            return False

    def _read(self, tip: RevisionId | None) -> None:
        """Read the trailers of the revisions that came since the last time."""
        if tip is None:
            self._tip, self._new_ids = None, {}
            return
        walk = ("log", "--grep=^Was: ", _FORMAT, "--end-of-options", tip)
        try:
            out = run_git(self._git, *walk, *([f"^{self._tip}"] if self._tip else []), "--")
        except Unavailable:
            if self._tip is None:
                raise
            self._tip, self._new_ids = None, {}  # the last one is gone: the history was rewritten
            out = run_git(self._git, *walk, "--")
        for revision in out.decode(errors="replace").split("\0")[1:]:
            new_id, *lines = revision.split("\n")
            for line in lines:
                if line.startswith(_LINE):
                    old_ids = line.removeprefix(_LINE).split()
                    self._new_ids.update(dict.fromkeys(old_ids, RevisionId(new_id)))
        self._tip = tip
