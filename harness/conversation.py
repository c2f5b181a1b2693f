"""Conversations: what people see. One belongs to the user of its first turn; for everyone else it
does not exist."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.account import Principal
from workspaces.clock import Clock
from workspaces.errors import Conflict, NotFound
from workspaces.expect import ABSENT
from workspaces.ids import AgentId, ConversationId, UserId, new_id
from workspaces.records import Item, Key, Put, RecordStore
from workspaces.stamp import Stamp, stamp_of


@dataclass(frozen=True, slots=True)
class Conversation:
    id: ConversationId
    key: str
    agent_id: AgentId
    user_id: UserId
    created_at: Stamp


class Conversations:
    def __init__(self, principal: Principal, records: RecordStore, clock: Clock) -> None:
        self._principal = principal
        self._records = records
        self._clock = clock

    def find(self, agent_id: AgentId, key: str) -> Conversation | None:
        """The principal's conversation with this agent under this key, if there was a first turn."""
        pointer = self._records.get(self._pointer(agent_id, key))
        if pointer is None:
            return None
        item = self._records.get(self._key(pointer.value["id"]))
        return _conversation(item) if item else None

    def open(self, agent_id: AgentId, key: str) -> Conversation:
        """The same, begun if it is new."""
        found = self.find(agent_id, key)
        if found is not None:
            return found
        conversation = Conversation(
            ConversationId(new_id("conv")),
            key,
            agent_id,
            self._principal.user_id,
            stamp_of(self._clock.now()),
        )
        value = {
            "key": key,
            "agentId": agent_id,
            "userId": conversation.user_id,
            "createdAt": conversation.created_at,
        }
        try:
            self._records.write(
                Put(self._key(conversation.id), value, expect=ABSENT),
                Put(self._pointer(agent_id, key), {"id": conversation.id}, expect=ABSENT),
            )
        except Conflict:  # somebody began it in the same instant
            return self._required(agent_id, key)
        return conversation

    def _required(self, agent_id: AgentId, key: str) -> Conversation:
        found = self.find(agent_id, key)
        if found is None:
            raise NotFound("conversation", key)
        return found

    def _key(self, conversation_id: str) -> Key:
        return Key(f"account:{self._principal.account_id}", f"conversation:{conversation_id}")

    def _pointer(self, agent_id: AgentId, key: str) -> Key:
        """Under the user: another user's conversation of the same key is another conversation."""
        partition = f"conversations:{self._principal.account_id}:{self._principal.user_id}"
        return Key(partition, f"{agent_id}:{key}")


def _conversation(item: Item) -> Conversation:
    value = item.value
    return Conversation(
        ConversationId(item.key.sort.partition(":")[2]),
        value["key"],
        AgentId(value["agentId"]),
        UserId(value["userId"]),
        Stamp(value["createdAt"]),
    )
