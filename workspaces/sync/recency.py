"""Find out which of two changes of a file is the later one.

This decides only which value wins when both sides set the same key of a front matter.
"""

from __future__ import annotations

from workspaces.history.history import History
from workspaces.paths import WorkspacePath

REVISIONS_MAX = 50
"""Revisions to walk back in search of the change. A change older than that no longer counts with its own
stamp."""


def may_have_front_matter(data: bytes) -> bool:
    """Return True if the bytes may contain a front matter."""
    return data.startswith(b"---")


def changed_at(history: History, path: WorkspacePath) -> str:
    """Return the stamp of the revision that gave the file its newest state, or "" if there is no revision."""
    revision = history.tip()
    if revision is None:
        return ""
    state = history.find(revision, path)
    for _ in range(REVISIONS_MAX):
        parents = history.commit(revision).parents
        before = next((parent for parent in parents if history.find(parent, path) == state), None)
        if before is None:
            break
        revision = before
    return history.commit(revision).at
