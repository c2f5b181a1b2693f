"""What comes in: somebody says something to an agent in a conversation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from workspaces.errors import Refused
from workspaces.ids import AccountId, AgentId

KEY_CHARACTERS_MAX = 200
CONTENT_CHARACTERS_MAX = 10_000_000

_RESERVED = ("acct:", "conversation-lease:", "run:", "shared")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing said. The same id is processed once; another body under it is refused."""

    id: str
    conversation_key: str
    content: str

    def __post_init__(self) -> None:
        for field, value in (("eventId", self.id), ("conversationKey", self.conversation_key)):
            if not 1 <= len(value) <= KEY_CHARACTERS_MAX or not value.isprintable():
                rule = f"must be 1 to {KEY_CHARACTERS_MAX} printable characters"
                raise Refused(field, value, rule)
        if self.conversation_key.startswith(_RESERVED):
            raise Refused("conversationKey", self.conversation_key, "begins with a reserved word")
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


def full_key(account_id: AccountId, agent_id: AgentId, conversation_key: str) -> str:
    """The conversation's own key: what its lease is named after."""
    return f"acct:{account_id}:agent:{agent_id}:api:{conversation_key}"


def _is_unicode(text: str) -> bool:
    """Without halves of surrogate pairs, which is what bytes that are no UTF-8 become in Python."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
