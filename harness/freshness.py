"""What a turn sees of other machines, and what they see of it: pulled before, pushed after.

A store that does not answer stops no turn: it goes on with the files as they are here, and its outcome
says that they are here alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from harness.agent import Mount
from workspaces.errors import Failure
from workspaces.sync.sync import Sync

_LOG = logging.getLogger("harness.freshness")


def pull(mounts: Iterable[Mount]) -> None:
    """The files as they are in S3 now, with what was changed here."""
    for mount, sync in _shared(mounts):
        try:
            sync.run()
        except Failure as failure:
            _LOG.warning("%s is not up to date: %s", mount.name, failure)


def push(mounts: Iterable[Mount], changed: Iterable[str]) -> bool:
    """What the turn changed goes out. Whether all of it is in S3 now; `changed` names its mounts."""
    mounts = list(mounts)
    is_durable = {mount.name: False for mount in mounts}
    for mount, sync in _shared(mounts):
        try:
            is_durable[mount.name] = sync.push_dirty().is_durable
        except Failure as failure:
            _LOG.warning("%s is not in S3 yet: %s", mount.name, failure)
    concerned = set(changed) or {mount.name for mount, _ in _shared(mounts)}
    return bool(concerned) and all(is_durable.get(name, False) for name in concerned)


def _shared(mounts: Iterable[Mount]) -> list[tuple[Mount, Sync]]:
    """Those that have a copy here; the others are read in S3, as they are there."""
    copies = [(mount, mount.here.remote) for mount in mounts if not mount.is_distant]
    return [(mount, remote) for mount, remote in copies if isinstance(remote, Sync)]
