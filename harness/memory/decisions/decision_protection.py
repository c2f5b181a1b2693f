"""The rule for decisions: what was decided is never rewritten by a model."""

from __future__ import annotations

from harness.memory.decisions.decision import FOLDER, LOG_SUFFIX
from workspaces.paths import WorkspacePath
from workspaces.workspace.protection import PutBack


def protect_decision(
    path: WorkspacePath, before: bytes | None, after: bytes | None
) -> PutBack | None:
    """Return a decision's file as it was, if it was there. A log may only grow."""
    if before is None or not path.startswith(f"{FOLDER}/") or not path.endswith(".md"):
        return None
    if path.endswith(LOG_SUFFIX) and after is not None and after.startswith(before):
        return None
    return PutBack(path, before, "a decision is never rewritten")
