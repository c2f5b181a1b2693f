"""Claim a scheduled tick for one of the machines that share a bucket, but not their records.

    .records/<accountId>/ticks/<agentId>/<tick>     {"machine": …}

The object is created with `If-None-Match: *`, so one machine gets the tick. It names that machine: if its
process dies behind the claim, the machine finds its own claim again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from workspaces.conditions import ABSENT
from workspaces.errors import Conflict, NotFound
from workspaces.ids import AgentId
from workspaces.remote.registry import TICKS
from workspaces.storage.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class TickClaims:
    """The claims of one account."""

    store: BlobStore

    def claim(self, agent_id: AgentId, tick: datetime, machine: str) -> bool:
        """Return True if this machine has the tick, now or from an earlier call.

        Raises: Unavailable if the store does not answer.
        """
        name = f"{TICKS}{agent_id}/{tick.astimezone(UTC):%Y%m%dT%H%MZ}"
        data = json.dumps({"machine": machine}).encode()
        try:
            self.store.write(name, data, expect=ABSENT)
        except Conflict:
            return self._is_ours(name, data)
        return True

    def _is_ours(self, name: str, data: bytes) -> bool:
        try:
            return self.store.read(name).data == data
        except NotFound:  # it was removed since: the tick is old
            return False
