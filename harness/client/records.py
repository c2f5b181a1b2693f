"""The records of an account as the API shows them: workspaces, agents, users, sandboxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from harness.agents.mounts import mount_name
from harness.client.connection import Connection
from workspaces.errors import AlreadyExists, NotFound
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel

RecordReference = StrictModel | Mapping[str, Any] | str
"""A record, or its id or name."""


class Records:
    """The records of one kind."""

    def __init__(self, connection: Connection, kind: str) -> None:
        self._connection = connection
        self._kind = kind

    async def create(self, name: str, **fields: Any) -> JsonObject:
        """Create a record. `fields` are its other fields, as in `description="…", config={…}`."""
        return await self._ask("POST", fields={"name": name, **fields})

    async def open_or_create(self, name: str, **fields: Any) -> JsonObject:
        """Return the record with this name. Create it if there is none; else it stays as it is."""
        try:
            return await self.get(name)
        except NotFound:
            pass
        try:
            return await self.create(name, **fields)
        except AlreadyExists:  # another client was faster
            return await self.get(name)

    async def list(self) -> list[JsonObject]:
        return (await self._ask("GET"))[self._kind]

    async def get(self, named: RecordReference) -> JsonObject:
        return await self._ask("GET", named)

    async def patch(self, named: RecordReference, patch: Mapping[str, Any]) -> JsonObject:
        """Apply a merge patch: a field that is null is removed."""
        return await self._ask("PATCH", named, fields=patch)

    async def delete(self, named: RecordReference, *, force: bool = False) -> None:
        """Delete a record with everything that belongs to it; with `force` also while others refer to it."""
        await self._ask("DELETE", named, query={"force": "true"} if force else {})

    async def _ask(self, method: str, named: RecordReference | None = None, **request: Any) -> Any:
        path = "" if named is None else f"/{reference_of(named)}"
        response = self._connection.ask(method, f"/accounts/me/{self._kind}{path}", **request)
        return (await response).json


class Agents(Records):
    """The agents of an account."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "agents")
        self._workspaces = Records(connection, "workspaces")
        self._sandboxes = Records(connection, "sandboxes")

    async def create(
        self,
        name: str,
        *,
        workspaces: Sequence[RecordReference] = (),
        sandbox: RecordReference | None = "default",
        **config: Any,
    ) -> JsonObject:
        """Create an agent that mounts these workspaces, the first one as its default.

        With `sandbox` None the agent has no sandbox, and its mounts are read-only. `config` holds the other
        fields of its `config`.
        """
        mounted = [await self._workspaces.get(one) for one in workspaces]
        mounts = [{"name": mount_name(one["name"]), "workspaceId": one["id"]} for one in mounted]
        merged = {**config, **({"workspaces": mounts} if mounts else {})}
        if sandbox is not None:
            merged["sandbox"] = (await self._sandboxes.get(sandbox))["id"]
        return await super().create(name, config=merged)


def reference_of(named: RecordReference) -> str:
    """Return the id or name as a part of a path."""
    match named:
        case str():
            reference = named
        case StrictModel():
            reference = cast("Any", named).id
        case _:
            reference = named["id"]
    return quote(str(reference), safe="")
