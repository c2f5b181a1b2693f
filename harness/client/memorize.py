"""Facts with proof, and the archived conversations that they cite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from harness.client.connection import Connection
from workspaces.storage.records import JsonObject


class MemorizeClient:
    """The calls of memorize. A call whose response was lost can be made again: nothing is stored twice."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def memorize(
        self,
        content: str,
        *,
        conversation: str | JsonObject,
        quotes: Sequence[str] = (),
        source: str | None = None,
        **fields: Any,
    ) -> JsonObject:
        """Store a fact, and return it with its status and warnings.

        `conversation` is the id of a conversation of this server, or a whole one that the caller has:
        `{"id": …, "provider": …, "messages": [{"role": …, "text": …}]}`. `quotes` are words of it that prove
        the fact. `fields` are further ones of the memory, such as `tags`, `memory_key` or `groundings`.

        Raises: Refused if a quote does not stand in the conversation. Conflict if a person has edited it.
        """
        memory: JsonObject = {"content": content, **fields}
        if quotes:
            cited = [{"quote": one} for one in quotes]
            memory["groundings"] = [*memory.get("groundings", ()), *cited]
        if isinstance(conversation, str):
            body: JsonObject = {"memory": {**memory, "conversation_id": conversation}}
        else:
            body = {"memory": memory, "conversation": conversation}
        if source is not None:
            body["source"] = source
        return await self._ask("POST", "/api/memories/memorize", fields=body)

    async def list(self, **query: str | int) -> JsonObject:
        """Return a page of memories, those that changed last first.

        `query` are `q`, `tags`, `project` and the like; `page` and `per_page` choose the page.
        """
        return await self._ask("GET", "/api/memories", query=_texts(query))

    async def get(self, memory: str) -> JsonObject:
        """Return the memory with this id or key."""
        return await self._ask("GET", f"/api/memories/{_part(memory)}")

    async def delete(self, memory: str) -> None:
        """Delete a memory. Its conversation stays."""
        await self._ask("DELETE", f"/api/memories/{_part(memory)}")

    async def conversations(self, **query: str | int) -> JsonObject:
        """Return a page of the archived conversations."""
        return await self._ask("GET", "/api/conversations", query=_texts(query))

    async def conversation(self, conversation: str, **query: str | int) -> JsonObject:
        """Return an archived conversation with its newest messages, or those `around` a position."""
        path = f"/api/conversations/{_part(conversation)}"
        return await self._ask("GET", path, query=_texts(query))

    async def delete_conversation(self, conversation: str) -> None:
        """Delete an archived conversation. The memories that cite it stay, without proof."""
        await self._ask("DELETE", f"/api/conversations/{_part(conversation)}")

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        return (await self._connection.ask(method, path, **request)).json


def _part(text: str) -> str:
    return quote(text, safe="")


def _texts(query: dict[str, str | int]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items()}
