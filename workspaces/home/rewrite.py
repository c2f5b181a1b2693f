"""Rewrite one workspace everywhere: `rewrite_workspace(workspace, redaction, by=…, label=…)`.

The caller says what goes (`Redaction`: a function for files and one for messages and names) and gets what
was found, by path and revision (`RewrittenWorkspace`). With `is_dry` nothing is changed. The call may be
repeated, and after a crash it must be, with the same redaction and label: each step finds what the one
before it left.

    the present files, as a revision → every revision of the past → nothing of the old history is on this disk
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workspaces.errors import Refused
from workspaces.history.git.rewrite import Found, Redaction
from workspaces.revision import Author, RevisionId
from workspaces.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RewrittenWorkspace:
    """What was found in a workspace, and what its revisions are called now."""

    found: tuple[Found, ...]
    """The places in the present files, then those in the past, oldest first."""
    unread: tuple[str, ...]
    """Files that could not be looked at, because they are none that a workspace keeps."""
    renamed: Mapping[RevisionId, RevisionId]
    """The revisions that have another id now: old id → new id. The history keeps this map itself."""
    paths: frozenset[str]
    """Every path, by its old and its new name, of which a version was rewritten."""


def rewrite_workspace(
    workspace: Workspace, redaction: Redaction, *, by: Author, label: str, is_dry: bool = False
) -> RewrittenWorkspace:
    """Take what a redaction finds out of the files and the history of a workspace, or only look for it.

    `by` is the author of the revision that changes the present files. `label` names the request in its
    trailer, and is no part of the text.

    Raises: Unavailable when programs keep saving the text, or the disk cannot be written."""
    if is_dry:
        files, history = workspace.rewriting.find(redaction)
    else:
        if workspace.remote is not None:
            raise Refused("workspace", workspace.name, "is shared with other machines")
        files = workspace.rewriting.redact_files(redaction, by=by, label=label)
        history = workspace.rewriting.rewrite_history(redaction, by=by)
    return RewrittenWorkspace(
        (*files.found, *(history.found if history else ())),
        files.unread,
        history.renamed if history else {},
        frozenset({one.path for one in files.found} | (history.paths if history else set())),
    )
