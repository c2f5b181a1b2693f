"""The memory blocks of a user, over HTTP.

core = await client.memory.get("core")
await client.memory.update("core", "- new", expected_updated_at=core.updated_at)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from harness.client.connection import Connection
from harness.client.errors import ServerFailure
from harness.memory.blocks.block import BlockScope, BlockType
from workspaces.errors import Conflict
from workspaces.ids import Version

BLOCKS = "/api/v1/memory/blocks"


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A block as the server has it."""

    id: str
    block_type: BlockType
    content: str
    scope: BlockScope
    agent_id: str | None
    created_at: datetime
    updated_at: datetime
    version: Version


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A line of an archival block that recall has found."""

    content: str
    score: float
    block_type: BlockType
    scope: BlockScope
    agent_id: str | None
    path: str
    line_number: int
    updated_at: datetime | None


class MemoryConflict(ServerFailure, Conflict):
    """A write to a block that has changed since. `block` is the current block, or None without one."""

    def __init__(self, failure: ServerFailure, block: MemoryBlock | None) -> None:
        ServerFailure.__init__(
            self, str(failure), code=failure.code, status=failure.status, field=failure.field
        )
        self.block = block


class MemoryClient:
    """The blocks of the caller's user. An agent is named by its id or name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(
        self,
        block_type: BlockType,
        *,
        scope: BlockScope | None = None,
        agent_id: str | None = None,
    ) -> MemoryBlock:
        """Return a block.

        Raises: NotFound.
        """
        query = _query(scope, agent_id)
        return _block((await self._connection.ask("GET", _path(block_type), query=query)).json)

    async def update(
        self,
        block_type: BlockType,
        content: str,
        *,
        expected_updated_at: datetime | str | None,
        scope: BlockScope | None = None,
        agent_id: str | None = None,
    ) -> MemoryBlock:
        """Replace a whole block. `expected_updated_at` is the one that you have read; None creates the block.

        Raises: Conflict, with the current `block`, if the block has changed since.
        """
        expected = expected_updated_at
        stated = expected.isoformat() if isinstance(expected, datetime) else expected
        try:
            answer = await self._connection.ask(
                "PUT",
                _path(block_type),
                fields={"content": content, "expected_updated_at": stated},
                query=_query(scope, agent_id),
            )
        except ServerFailure as failure:
            raise _with_block(failure) from failure
        return _block(answer.json)

    async def delete(
        self,
        block_type: BlockType,
        *,
        expected_updated_at: datetime | str | None = None,
        scope: BlockScope | None = None,
        agent_id: str | None = None,
    ) -> None:
        """Delete a block; with `expected_updated_at` only if it has not changed since. Its history stays.

        Raises: NotFound; Conflict, with the current `block`.
        """
        query = _query(scope, agent_id)
        expected = expected_updated_at
        if expected is not None:
            stated = expected.isoformat() if isinstance(expected, datetime) else expected
            query["expected_updated_at"] = stated
        try:
            await self._connection.ask("DELETE", _path(block_type), query=query)
        except ServerFailure as failure:
            raise _with_block(failure) from failure

    async def recall(
        self, query: str | None = None, *, agent_id: str | None = None, limit: int = 10
    ) -> list[MemoryMatch]:
        """Return the archival lines that a query is about, best first. Without a query, the first lines."""
        fields = {"query": query, "agent_id": agent_id, "limit": limit}
        answer = await self._connection.ask("POST", "/api/v1/memory/recall", fields=fields)
        return [_match(one) for one in answer.json]

    async def list(
        self,
        *,
        scope: Literal["user", "agent", "all"] | None = None,
        agent_id: str | None = None,
    ) -> list[MemoryBlock]:
        """Return the blocks that exist: the user's, those with an agent, or `all` of them."""
        query = _query(scope, agent_id)
        return [
            _block(one) for one in (await self._connection.ask("GET", BLOCKS, query=query)).json
        ]


def _path(block_type: str) -> str:
    return f"{BLOCKS}/{quote(block_type, safe='')}"


def _query(scope: str | None, agent_id: str | None) -> dict[str, str]:
    stated = {"scope": scope, "agent_id": agent_id}
    return {name: value for name, value in stated.items() if value is not None}


def _with_block(failure: ServerFailure) -> ServerFailure:
    """Return the failure, with the current block if the server has sent it."""
    if not isinstance(failure, Conflict) or "block" not in failure.body:
        return failure
    block = failure.body["block"]
    return MemoryConflict(failure, None if block is None else _block(block))


def _block(data: Mapping[str, Any]) -> MemoryBlock:
    return MemoryBlock(
        id=data["id"],
        block_type=data["block_type"],
        content=data["content"],
        scope=data["scope"],
        agent_id=data["agent_id"],
        created_at=datetime.fromisoformat(data["created_at"]),
        updated_at=datetime.fromisoformat(data["updated_at"]),
        version=Version(data["version"]),
    )


def _match(data: Mapping[str, Any]) -> MemoryMatch:
    at = data["updated_at"]
    return MemoryMatch(
        content=data["content"],
        score=data["score"],
        block_type=data["block_type"],
        scope=data["scope"],
        agent_id=data["agent_id"],
        path=data["path"],
        line_number=data["line_number"],
        updated_at=None if at is None else datetime.fromisoformat(at),
    )
