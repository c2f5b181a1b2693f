"""Sync around a turn: pull the files before it, push its changes after it.

A store that does not answer stops no turn. The turn uses the files of this machine, and its outcome says
that its changes are on this machine alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.agents.mounts import Mount
from harness.memory.workspace_sync import sync_of
from workspaces.durability import HERE, Durable
from workspaces.errors import Failure

if TYPE_CHECKING:
    from workspaces.sync.engine import Sync
    from workspaces.workspace.workspace import Workspace

_LOG = logging.getLogger("harness.sync.turn_sync")


def pull(mounts: Iterable[Mount], others: Iterable[Workspace] = ()) -> None:
    """Bring the files up to date with S3, keeping local changes.

    `others` are workspaces that the turn reads, mounted or not.
    """
    named = {mount.namespace: (mount.name, sync) for mount, sync in _shared(mounts)}
    for workspace in others:
        if (sync := sync_of(workspace)) is not None:
            named.setdefault(workspace.namespace, (workspace.record.name, sync))
    for name, sync in named.values():
        try:
            sync.pull()
        except Failure as failure:
            _LOG.warning("%s is not up to date: %s", name, failure)


def is_shared(mounts: Iterable[Mount]) -> bool:
    """Return True if a mounted workspace is shared, so that there is something to pull or push."""
    return bool(_shared(mounts))


def push(mounts: Iterable[Mount], changed: Iterable[str]) -> Durable:
    """Push what the turn changed, files and history. `changed` names the mounts that it changed.

    Return what of all these mounts is in S3.
    """
    reached: dict[str, Durable] = {}
    shared = _shared(mounts)
    for mount, sync in shared:
        try:
            report = sync.push_dirty()
        except Failure as failure:
            _LOG.warning("%s is not in S3 yet: %s", mount.name, failure)
            continue
        reached[mount.name] = report.durable
        if report.unfollowed is not None:
            _LOG.warning("the history of %s is not in S3: %s", mount.name, report.unfollowed)
    concerned = [reached.get(name, HERE) for name in set(changed) or {m.name for m, _ in shared}]
    if not concerned:
        return HERE
    return Durable.of(
        files=all(one.files == "s3" for one in concerned),
        history=all(one.history == "s3" for one in concerned),
    )


def _shared(mounts: Iterable[Mount]) -> list[tuple[Mount, Sync]]:
    """Return the shared mounts that have a copy on this machine. The others are read in place in S3."""
    copies = [(mount, sync_of(mount.here)) for mount in mounts if not mount.is_distant]
    return [(mount, sync) for mount, sync in copies if sync is not None]
