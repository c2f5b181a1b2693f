"""The types of all ids, the hash that names a workspace's storage, and the making of new ids.

Ids are opaque on input: the program never parses one.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import NewType

AccountId = NewType("AccountId", str)
UserId = NewType("UserId", str)
WorkspaceId = NewType("WorkspaceId", str)
SandboxId = NewType("SandboxId", str)
AgentId = NewType("AgentId", str)
ConversationId = NewType("ConversationId", str)
SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
KeyId = NewType("KeyId", str)
RunId = NewType("RunId", str)
ChainId = NewType("ChainId", str)

Namespace = NewType("Namespace", str)
"""The hash that names a workspace's storage: the same string on disk and in S3."""

Version = NewType("Version", str)
"""Hex SHA-256 of a file's bytes, equal on every machine."""

ID_HEX_DIGITS = 24
"""96 random bits: ids do not collide, and a person can still compare them by eye."""

HASH_HEX_DIGITS = 40

_ID = re.compile(rf"[a-z]+_[0-9a-f]{{{ID_HEX_DIGITS}}}|(agent|user):.*", re.DOTALL)


def namespace(account_id: str, workspace_id: str) -> Namespace:
    return Namespace("fs-" + _keyed_hash("filesystem-namespace", f"{account_id}:{workspace_id}"))


def lease_key(conversation_key: str) -> str:
    return "conversation-lease:" + _keyed_hash("conversation-lease", conversation_key)


def version_of(data: bytes) -> Version:
    return Version(sha256(data).hexdigest())


def new_id(prefix: str) -> str:
    """Return a new id such as `ws_` and 24 hex digits. `prefix` has no underscore."""
    return f"{prefix}_{secrets.token_hex(ID_HEX_DIGITS // 2)}"


def looks_like_id(text: str) -> bool:
    """Return True if a name could be mistaken for an id, also of a private workspace. No name may be."""
    return _ID.fullmatch(text) is not None


def _keyed_hash(purpose: str, text: str) -> str:
    return sha256(purpose.encode() + b"\0" + text.encode()).hexdigest()[:HASH_HEX_DIGITS]
