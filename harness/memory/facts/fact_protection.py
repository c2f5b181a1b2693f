"""The rule for facts: pin and importance are a person's to set."""

from __future__ import annotations

from harness.memory.facts.fact import is_fact_path
from harness.memory.facts.fact_file import put_back
from workspaces.paths import WorkspacePath
from workspaces.revision import Author
from workspaces.workspace.protection import PutBack


def protect_fact(
    path: WorkspacePath, before: bytes | None, after: bytes | None, by: Author
) -> PutBack | None:
    """Return a fact's file with pin and importance as they were: absent in a new fact. A deletion stays."""
    del by  # the rules of a workspace ask about no writer whom they do not concern
    if after is None or not is_fact_path(path):
        return None
    data, changed = put_back(path, before, after)
    return PutBack(path, data, ", ".join(changed)) if changed else None
