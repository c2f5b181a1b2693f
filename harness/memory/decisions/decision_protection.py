"""The rule for decisions: only the tool of results makes one, and nobody but a person rewrites it."""

from __future__ import annotations

import re

from harness.memory.decisions.decision import FOLDER, LOG_SUFFIX
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.workspace.protection import PutBack

SUBMITTED = "Decision"
"""The trailer that names the run in what the harness itself writes of a decision. No model's tool sets it."""

_OF_A_RUN = re.compile(rf"{FOLDER}/[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}-(run_[0-9a-f]+)(\.log)?\.md")


def protect_decision(
    path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
) -> PutBack | None:
    """Return a decision's file, or its log, as it was. The harness makes the file, and extends the log."""
    named = _OF_A_RUN.fullmatch(path)
    if named is None:
        return None
    is_harness = by.trailers.get(SUBMITTED) == named[1]
    if path.endswith(LOG_SUFFIX):
        is_longer = after is not None and after.startswith(before or b"")
        return None if is_harness and is_longer else PutBack(path, before, "a log of the harness")
    if before is None:  # a file that a model makes is not what a run has submitted
        return None if is_harness else PutBack(path, None, "a decision is made by its run alone")
    return PutBack(path, before, "a decision is never rewritten")
