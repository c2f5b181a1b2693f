"""The records of an account, as the API shows them: workspaces, agents, users, sandboxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from harness.agents.mounts import mount_name
from harness.client.connection import Connection
from workspaces.storage.records import JsonObject
from workspaces.validation import StrictModel

RecordReference = StrictModel | Mapping[str, Any] | str
"""A record, or the id or the name of one."""


class Records:
    """Of one kind."""

    def __init__(self, connection: Connection, kind: str) -> None:
        self._connection = connection
        self._kind = kind

    async def create(self, name: str, **fields: Any) -> JsonObject:
        """`fields`: whatever else is to stand in it, as in `description="…", config={…}`."""
        return await self._ask("POST", fields={"name": name, **fields})

    async def list(self) -> list[JsonObject]:
        return (await self._ask("GET"))[self._kind]

    async def get(self, named: RecordReference) -> JsonObject:
        return await self._ask("GET", named)

    async def patch(self, named: RecordReference, patch: Mapping[str, Any]) -> JsonObject:
        """A merge patch: what is null goes."""
        return await self._ask("PATCH", named, fields=patch)

    async def delete(self, named: RecordReference, *, force: bool = False) -> None:
        """With what belongs to it; `force`: also while others refer to it."""
        await self._ask("DELETE", named, query={"force": "true"} if force else {})

    async def _ask(self, method: str, named: RecordReference | None = None, **how: Any) -> Any:
        place = "" if named is None else f"/{reference_of(named)}"
        asked = self._connection.ask(method, f"/accounts/me/{self._kind}{place}", **how)
        return (await asked).json


class Agents(Records):
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
        """An agent that mounts these workspaces, the first one being its default. `sandbox` None leaves it
        without: its mounts are then read-only. `config`: whatever else is to stand in its `config`."""
        found = [await self._workspaces.get(one) for one in workspaces]
        mounts = [{"name": mount_name(one["name"]), "workspaceId": one["id"]} for one in found]
        stated = {**config, **({"workspaces": mounts} if mounts else {})}
        if sandbox is not None:
            stated["sandbox"] = (await self._sandboxes.get(sandbox))["id"]
        return await super().create(name, config=stated)


def reference_of(named: RecordReference) -> str:
    """As it stands in a path."""
    match named:
        case str():
            reference = named
        case StrictModel():
            reference = cast("Any", named).id
        case _:
            reference = named["id"]
    return quote(str(reference), safe="")
