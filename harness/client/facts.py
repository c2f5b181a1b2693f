"""The facts of a workspace or an agent, as rows."""

from __future__ import annotations

from typing import Any

from harness.client.connection import Connection
from harness.client.records import RecordReference, reference_of
from workspaces.ids import Version
from workspaces.storage.records import JsonObject


class FactRows:
    """The facts of one workspace, or of one agent."""

    def __init__(self, connection: Connection, kind: str, named: RecordReference) -> None:
        self._connection = connection
        self._path = f"/api/{kind}/{reference_of(named)}/memories"

    async def list(
        self, *, source: str | None = None, pinned: bool | None = None
    ) -> list[JsonObject]:
        """Return the facts, pinned ones first, then by importance."""
        query = {} if source is None else {"source": source}
        query |= {} if pinned is None else {"pinned": str(pinned).lower()}
        return await self._ask("GET", "", query=query)

    async def put(self, key: str, value: str, **fields: Any) -> JsonObject:
        """Set the fact with this key. `fields` are `pinned` and `importance`; without them a fact that
        exists keeps its own."""
        return await self._ask("POST", "", fields={"key": key, "value": value, **fields})

    async def change(
        self, fact: str, *, expect: Version | None = None, **fields: Any
    ) -> JsonObject:
        """Change the fact with this id: `value`, `pinned`, `importance`. `source="manual"` takes over what a
        model wrote. `expect` is the version that the caller has seen."""
        headers = {} if expect is None else {"If-Match": f'"{expect}"'}
        return await self._ask("PATCH", f"/{fact}", fields=fields, headers=headers)

    async def delete(self, fact: str) -> None:
        """Delete the fact with this id."""
        await self._ask("DELETE", f"/{fact}")

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        response = await self._connection.ask(method, self._path + path, **request)
        return response.json["data"]
