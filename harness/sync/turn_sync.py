"""What a turn sees of other machines, and what they see of it: pulled before, pushed after.

A store that does not answer stops no turn: it goes on with the files as they are here, and its outcome
says that they are here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from harness.agents.mounts import Mount
from workspaces.durability import HERE, Durable
from workspaces.errors import Failure
from workspaces.sync.engine import Sync

_LOG = logging.getLogger("harness.sync.turn_sync")


def pull(mounts: Iterable[Mount]) -> None:
    """The files as they are in S3, with what was changed here."""
    for mount, sync in _shared(mounts):
        try:
            sync.pull()
        except Failure as failure:
            _LOG.warning("%s is not up to date: %s", mount.name, failure)


def is_shared(mounts: Iterable[Mount]) -> bool:
    """Whether there is anything to be brought or to go out."""
    return bool(_shared(mounts))


def push(mounts: Iterable[Mount], changed: Iterable[str]) -> Durable:
    """What the turn changed goes out, files and history. What is in S3 of all of it; `changed` names its
    mounts."""
    found: dict[str, Durable] = {}
    shared = _shared(mounts)
    for mount, sync in shared:
        try:
            report = sync.push_dirty()
        except Failure as failure:
            _LOG.warning("%s is not in S3 yet: %s", mount.name, failure)
            continue
        found[mount.name] = report.durable
        if report.unfollowed is not None:
            _LOG.warning("the history of %s is not in S3: %s", mount.name, report.unfollowed)
    concerned = [found.get(name, HERE) for name in set(changed) or {m.name for m, _ in shared}]
    if not concerned:
        return HERE
    return Durable(
        all(durable.files for durable in concerned), all(durable.history for durable in concerned)
    )


def _shared(mounts: Iterable[Mount]) -> list[tuple[Mount, Sync]]:
    """Those that have a copy here; the others are read in S3, as they are there."""
    copies = [(mount, mount.here.remote) for mount in mounts if not mount.is_distant]
    return [(mount, remote) for mount, remote in copies if isinstance(remote, Sync)]
