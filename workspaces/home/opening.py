"""Open the local tree of a workspace, with everything that reads and writes it on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workspaces.accounts.principal import Principal
from workspaces.clock import Clock
from workspaces.coordination.writer_lock import WriterLock
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.history.file_origins import FileOrigins
from workspaces.history.history import History
from workspaces.history.line_origins import LineOrigins
from workspaces.home.layout import Home
from workspaces.ids import Namespace
from workspaces.localfs.safe_open import as_failure
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.held_back import HeldBackFiles
from workspaces.workspace.protection import Protection
from workspaces.workspace.workspace import AnyRecord, Workspace

if TYPE_CHECKING:
    from workspaces.search.embeddings import Embedder
    from workspaces.search.recall import Recall


def open_tree(
    record: AnyRecord,
    name: Namespace,
    home: Home,
    principal: Principal,
    clock: Clock,
    *,
    embedder: Embedder | None,
    protection: Protection | None,
    forbidden: ForbiddenTexts | None = None,
) -> Workspace:
    """Return the workspace whose tree is in this home, not shared with any machine yet.

    Raises: Unavailable if the tree cannot be used.
    """
    try:
        home.hand_over(name)
    except OSError as error:
        raise as_failure(error, str(home.tree(name))) from error
    history = History(home.history(name), clock)
    blobs = FileBlobs(home.tree(name), home.staging(name), bytes_max=record.quota.file_bytes)
    origins = LineOrigins(home.search(name), history)
    rules = protection or Protection()
    if forbidden is not None:
        rules = rules.gated(forbidden.of_workspace(record.id))
    readable = HeldBackFiles(rules.gate, history).readable

    def open_recall() -> Recall:
        from workspaces.search.recall import Recall

        index = home.search(name)
        return Recall(index, blobs, history, origins, clock, embedder, readable=readable)

    return Workspace(
        record,
        name,
        root=home.tree(name),
        blobs=blobs,
        history=history,
        origins=origins,
        file_origins=FileOrigins(home.search(name), history),
        recall=open_recall,
        lock=WriterLock(home.lock(name)),
        person=principal.owner.author("edit"),
        author=principal.author("api"),
        clock=clock,
        protection=rules,
    )
