"""The session of a browser: what its cookie stands for.

The cookie holds a random id. The store has only the hash of the id, and the hash of the secret with which the
session began. So neither the store nor the cookie holds a secret of the API. The secret is looked up again at
each request: a session ends when its key is revoked, at the latest after twelve hours.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.storage.records import Delete, Item, Key, Put, RecordStore

SESSION_BYTES = 32
"""Random bytes of an id: 43 url-safe characters."""

SESSION_S = 12 * 3600
"""Seconds until a session ends: a working day."""

SecretKind = Literal["key", "start"]
"""The kind of secret: an API key, or the start token that `harness up` prints."""

_ID = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session, and the secret that it stands for."""

    kind: SecretKind
    digest: str
    """The hash of the secret."""


class BrowserSessions:
    """The sessions of all browsers of a home."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def create(self, kind: SecretKind, digest: str) -> str:
        """Begin a session for the secret with this hash. Return its id, which cannot be read back."""
        session_id = secrets.token_urlsafe(SESSION_BYTES)
        ends = self._clock.now().timestamp() + SESSION_S
        value = {"kind": kind, "digest": digest}
        self._records.write(Put(_key(session_id), value, expect=ABSENT, expires_at=ends))
        return session_id

    def find(self, session_id: str) -> BrowserSession | None:
        item = self._item(session_id)
        return None if item is None else BrowserSession(item.value["kind"], item.value["digest"])

    def end(self, session_id: str) -> None:
        if self._item(session_id) is not None:
            self._records.write(Delete(_key(session_id)))

    def _item(self, session_id: str) -> Item | None:
        # nothing else was ever an id: the store is not asked
        return self._records.get(_key(session_id)) if _ID.fullmatch(session_id) else None


def _key(session_id: str) -> Key:
    return Key(f"session:{sha256(session_id.encode()).hexdigest()}", "session")
