"""Which of two changes of a file is the later one: it decides where both have set one key of a front matter,
and nothing else."""

from __future__ import annotations

from workspaces.history.history import History
from workspaces.paths import WorkspacePath

LOOKED_BACK_MAX = 50
"""Revisions since the file was changed that are counted; one that rested for so long has lost its claim."""


def decides(data: bytes) -> bool:
    """Whether there may be a front matter in it."""
    return data.startswith(b"---")


def changed_at(history: History, path: WorkspacePath) -> str:
    """The stamp of the revision that made the file what the newest one has; "" without any."""
    revision = history.tip()
    if revision is None:
        return ""
    state = history.find(revision, path)
    for _ in range(LOOKED_BACK_MAX):
        parents = history.commit(revision).parents
        before = next((one for one in parents if history.find(one, path) == state), None)
        if before is None:
            break
        revision = before
    return history.commit(revision).at
