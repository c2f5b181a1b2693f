"""Rewrite one workspace everywhere: `rewrite_workspace(workspace, redaction, by=…, label=…)`.

The caller says what goes (`Redaction`: a function for files and one for messages and names) and gets what
was found, by path and revision (`RewrittenWorkspace`). With `is_dry` nothing is changed. The call may be
repeated, and after a crash it must be, with the same redaction and label: each step finds what the one
before it left.

    the present files, as a revision → every revision of the past → nothing of the old history is on this disk

A shared workspace is synced before and after the first step, so that the store and this machine have the
same files and revisions, without the text. Then the past is replaced in the store, on the condition that no
other machine has moved its head since, and then here. Last, the old packs and all past versions of touched
files are deleted in the store. If another machine was faster, the steps begin again.

A machine that has not heard of it follows the new history at its next sync, as it follows every history. It
recognises its own revisions under their new names. It takes none of its old ones over: what it had not yet
shared becomes one revision. Then it erases the old history as this machine did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from workspaces.errors import Unavailable
from workspaces.history.git.rewrite import Found, Redaction, RewrittenHistory
from workspaces.revision import Author, RevisionId
from workspaces.sync.engine import Sync
from workspaces.workspace.rewriting import RedactedFiles
from workspaces.workspace.workspace import Workspace

ROUNDS_MAX = 10
"""Times that the steps begin again because others were faster."""


@dataclass(frozen=True, slots=True)
class RewrittenWorkspace:
    """What was found in a workspace, and what its revisions are called now."""

    found: tuple[Found, ...]
    """The places in the present files, then those in the past, oldest first."""
    unread: tuple[str, ...]
    """Entries that cannot be read as files of a workspace, such as links. Nobody looked at what they hold."""
    renamed: Mapping[RevisionId, RevisionId]
    """The revisions that have another id now: old id → new id. The history keeps this map itself."""
    not_erased: tuple[str, ...]
    """Names of which the store keeps past versions, because it locks them or allows no deletion. An empty
    name stands for all."""
    paths: frozenset[str]
    """Every path, by its old and its new name, of which a version was rewritten."""


def rewrite_workspace(
    workspace: Workspace, redaction: Redaction, *, by: Author, label: str, is_dry: bool = False
) -> RewrittenWorkspace:
    """Take what a redaction finds out of the files and the history of a workspace, or only look for it.

    `by` is the author of the revision that changes the present files. `label` names the request in its
    trailer, and is no part of the text.

    Raises: Unavailable when programs keep saving the text, when the disk cannot be written, or when the store
    cannot be reached. Then the call must be repeated. MassDeletion as a sync does."""
    remote = workspace.edits.remote
    if is_dry:
        files, history = workspace.rewriting.find(redaction)
    else:
        if remote is None:
            files, history = _rewrite_here(workspace, redaction, by, label)
        elif isinstance(remote, Sync):
            files, history = _rewrite_shared(workspace, remote, redaction, by, label)
        else:
            raise Unavailable(f"store of {workspace.name}", "this home has no S3 location")
    return RewrittenWorkspace(
        (*files.found, *(history.found if history else ())),
        files.unread,
        history.renamed if history else {},
        remote.not_erased if isinstance(remote, Sync) and not is_dry else (),
        frozenset({one.path for one in files.found} | (history.paths if history else set())),
    )


_Steps = tuple[RedactedFiles, RewrittenHistory]


def _rewrite_here(workspace: Workspace, redaction: Redaction, by: Author, label: str) -> _Steps:
    found: tuple[Found, ...] = ()
    for _ in range(ROUNDS_MAX):
        files = workspace.rewriting.redact_files(redaction, by=by, label=label)
        found += files.found
        history = workspace.rewriting.rewrite_history(redaction, by=by)
        if history is not None:
            workspace.rewriting.erase(by=by)
            return replace(files, found=found), history
    raise Unavailable(
        f"files of {workspace.name}", "others keep writing the text", remedy="try again later"
    )


def _rewrite_shared(
    workspace: Workspace, sync: Sync, redaction: Redaction, by: Author, label: str
) -> _Steps:
    found: tuple[Found, ...] = ()
    for _ in range(ROUNDS_MAX):
        _sync_all(sync)
        files = workspace.rewriting.redact_files(redaction, by=by, label=label)
        found += files.found
        _sync_all(sync)
        history = sync.replace_history(redaction, by=by)
        if history is not None:
            return replace(files, found=found), history
    raise Unavailable(
        f"history of {workspace.name}", "other machines keep changing it", remedy="try again later"
    )


def _sync_all(sync: Sync) -> None:
    """Sync until the store has all files and revisions.

    Raises: Unavailable if it does not have all of them, because then something of it cannot be rewritten."""
    report = sync.run()
    if report.unfollowed is not None:
        raise report.unfollowed
    if report.pending:
        paths = ", ".join(report.pending[:3])
        raise Unavailable("the sync", f"others keep changing {paths}", remedy="try again later")
