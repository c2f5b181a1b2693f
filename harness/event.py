"""What comes in: somebody says something to an agent in a conversation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from workspaces.errors import Refused
from workspaces.ids import AccountId, AgentId
from workspaces.records import JsonObject

KEY_CHARACTERS_MAX = 200
CONTENT_CHARACTERS_MAX = 10_000_000

OnBusy = Literal["queue", "reject"]
"""What becomes of an event when the conversation is in use: it waits its turn, or it is refused."""

_RESERVED = ("acct:", "conversation-lease:", "run:", "shared")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing said. The same id is processed once; another body under it is refused."""

    id: str
    conversation_key: str
    content: str
    on_busy: OnBusy | None = None
    """None: as the agent is configured."""

    def __post_init__(self) -> None:
        _check_name("eventId", self.id)
        check_key(self.conversation_key)
        if not self.content.strip():
            raise Refused("content", self.content, "is empty")
        if not _is_unicode(self.content):
            raise Refused("content", self.content, "is not Unicode text")
        if len(self.content) > CONTENT_CHARACTERS_MAX:
            raise Refused("content", self.content, f"is over {CONTENT_CHARACTERS_MAX:,} characters")

    @property
    def body_hash(self) -> str:
        body = json.dumps([self.conversation_key, self.content], ensure_ascii=True)
        return sha256(body.encode()).hexdigest()

    def as_json(self) -> JsonObject:
        return {"id": self.id, "conversationKey": self.conversation_key, "content": self.content}


def check_key(key: str) -> str:
    """A conversation key, as it may be chosen. Refused."""
    _check_name("conversationKey", key)
    if key.startswith(_RESERVED):
        raise Refused("conversationKey", key, "begins with a reserved word")
    return key


def event_of(data: JsonObject) -> Event:
    """One that waited."""
    return Event(data["id"], data["conversationKey"], data["content"])


def full_key(account_id: AccountId, agent_id: AgentId, conversation_key: str) -> str:
    """The conversation's own key: what its lease is named after."""
    return f"acct:{account_id}:agent:{agent_id}:api:{conversation_key}"


def _check_name(field: str, value: object) -> None:
    if not (
        isinstance(value, str) and 1 <= len(value) <= KEY_CHARACTERS_MAX and value.isprintable()
    ):
        rule = f"must be 1 to {KEY_CHARACTERS_MAX} printable characters"
        raise Refused(field, value, rule)


def _is_unicode(text: str) -> bool:
    """Without halves of surrogate pairs, which is what bytes that are no UTF-8 become in Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
