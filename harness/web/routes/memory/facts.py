"""Routes of facts as rows: the facts of a workspace, and those of an agent.

The paths, bodies and the envelope are those that programs for such rows already use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import Field

from harness.memory.facts.fact import IMPORTANCE_MAX, is_fact_id
from harness.memory.facts.facts import FactChange, Facts, FactWritten
from harness.presentation.fact_json import fact_json
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.envelope import Success, enveloped, enveloped_refusals, succeeded
from harness.web.http.errors import Json
from harness.web.http.precondition import Precondition, etag
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    TEXT,
    DeletionDocument,
    Query,
    Schema,
    Switch,
    schema_of,
    takes,
)
from workspaces.errors import NotFound, Refused
from workspaces.history.source import Source
from workspaces.validation import StrictModel, parse


class Row(StrictModel):
    """A fact."""

    id: str
    scope: Literal["agent", "workspace"]
    agent_id: str | None
    workspace_id: str | None
    key: str
    value: str
    source: Source
    pinned: bool
    importance: Annotated[int, Field(ge=0, le=IMPORTANCE_MAX)]
    created_at: str
    updated_at: str
    version: str
    """Hex SHA-256 of the fact's file, for `If-Match`."""
    truncated: bool = False
    """Only there if it is true: the file holds more than a fact may, and `value` is its beginning."""


class NewRow(StrictModel):
    key: str
    value: str
    source: Literal["manual"] = "manual"
    """A caller is a person or speaks for one. Who wrote a fact otherwise follows from its history."""
    pinned: bool = False
    importance: Annotated[int, Field(ge=0, le=IMPORTANCE_MAX)] = 0


class RowPatch(StrictModel):
    value: str | None = None
    source: Literal["manual"] | None = None
    pinned: bool | None = None
    importance: Annotated[int, Field(ge=0, le=IMPORTANCE_MAX)] | None = None


class Pin(StrictModel):
    pinned: bool


class RowQuery(Query):
    source: Source | None = None
    """Only facts of this source."""
    pinned: Switch | None = None
    """Only pinned facts, or only others."""


ROW: dict[str, Any] = {
    "id": "mem_0b9f2d5a7c4e6f8091a2b3c4",
    "scope": "agent",
    "agentId": "agent_a22494fde566d3dd4b631888",
    "workspaceId": None,
    "key": "deploy-cmd",
    "value": "Deploy with npm run deploy from repo root",
    "source": "manual",
    "pinned": True,
    "importance": 80,
    "createdAt": "2026-11-18T14:03:18.875130Z",
    "updatedAt": "2026-11-18T14:03:18.875130Z",
    "version": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
}
NEW = {name: ROW[name] for name in ("key", "value", "pinned", "importance")}
IF_MATCH: Schema = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "Only if the fact has this `version`, in quotes; `*`: only if it exists.",
            "schema": TEXT,
        }
    ]
}

_ROWS = enveloped(Success[list[Row]], [ROW], description="The facts, pinned ones first.")
_CHANGED = enveloped(Success[Row], ROW, description="The fact as it is now.")
_CREATED = enveloped(Success[Row], ROW, status=201, description="The fact is new.")
_GONE = enveloped(Success[DeletionDocument], {"deleted": True}, description="The fact is deleted.")

MemoryId = Annotated[str, Path(alias="memoryId", description="The id of the fact.")]


async def _agent_facts(
    caller: Caller, agent: Annotated[str, Path(alias="agentId", description="The id, or the name.")]
) -> Facts:
    return await run_in_thread(caller.facts.of_agent, agent)


async def _workspace_facts(
    caller: Caller,
    workspace: Annotated[str, Path(alias="workspaceId", description="The id, or the name.")],
) -> Facts:
    return await run_in_thread(caller.facts.of_workspace, workspace)


def _router(prefix: str, find: Callable[..., Awaitable[Facts]], whose: str) -> APIRouter:
    """Return the routes of the facts that `find` returns."""
    router = APIRouter(
        route_class=Route,
        prefix=prefix,
        tags=["facts"],
        dependencies=[documented_bearer],
        responses=enveloped_refusals(*EVERYWHERE),
    )
    found: Any = Depends(find)

    def list_rows(query: Annotated[RowQuery, QueryOf()], facts: Facts = found) -> Json:
        """List all facts: pinned first, then by importance."""
        return _rows(facts, query)

    def put_row(request: Request, fields: Fields, facts: Facts = found) -> Json:
        """Set the fact with this key. Pin and importance that are left out keep their value. A fact that a
        model wrote becomes the caller's."""
        return _put(request, facts, fields)

    def change_row(
        request: Request, memory: MemoryId, fields: Fields, facts: Facts = found
    ) -> Json:
        """Change the fields that are sent. The value of a fact that a model wrote is read-only, unless
        `source` says `manual`: then the fact becomes the caller's."""
        return _change(request, facts, memory, fields)

    def pin_row(request: Request, memory: MemoryId, fields: Fields, facts: Facts = found) -> Json:
        return _pin(request, facts, memory, fields)

    def delete_row(request: Request, memory: MemoryId, facts: Facts = found) -> Json:
        """Delete the fact. Its last version stays in the history."""
        check = Precondition.of(request.headers).check_match
        facts.delete(_id(memory), check=check)
        return succeeded({"deleted": True})

    writing = {**enveloped_refusals(409, 412, 422, *READING_JSON)}
    patched = schema_of(RowPatch)
    name = f"of_{whose}"
    add = router.add_api_route
    add(
        "",
        list_rows,
        methods=["GET"],
        name=f"list_facts_{name}",
        summary=f"List the facts of {_article(whose)}",
        responses=_ROWS,
    )
    add(
        "",
        put_row,
        methods=["POST"],
        name=f"put_fact_{name}",
        summary=f"Set a fact of {_article(whose)}",
        responses={**_CHANGED, **_CREATED, **writing},
        openapi_extra={**takes(schema_of(NewRow), NEW), **IF_MATCH},
    )
    add(
        "/{memoryId}",
        change_row,
        methods=["PATCH"],
        name=f"change_fact_{name}",
        summary=f"Change a fact of {_article(whose)}",
        responses={**_CHANGED, **writing},
        openapi_extra={**takes(patched, {"importance": 90}), **IF_MATCH},
    )
    add(
        "/{memoryId}/pin",
        pin_row,
        methods=["PATCH"],
        name=f"pin_fact_{name}",
        summary=f"Pin or unpin a fact of {_article(whose)}",
        responses={**_CHANGED, **writing},
        openapi_extra={**takes(schema_of(Pin), {"pinned": True}), **IF_MATCH},
    )
    add(
        "/{memoryId}",
        delete_row,
        methods=["DELETE"],
        name=f"delete_fact_{name}",
        summary=f"Delete a fact of {_article(whose)}",
        responses={**_GONE, **enveloped_refusals(409, 412, 422)},
        openapi_extra=IF_MATCH,
    )
    return router


def _article(whose: str) -> str:
    return f"an {whose}" if whose[0] == "a" else f"a {whose}"


def _rows(facts: Facts, query: RowQuery) -> Json:
    rows = facts.list(source=query.source, pinned=query.pinned)
    return succeeded([fact_json(fact, facts.scope) for fact in rows])


def _put(request: Request, facts: Facts, fields: dict[str, Any]) -> Json:
    row, stated = parse(NewRow, fields), fields.keys()
    written = facts.put(
        row.key,
        row.value,
        pinned=row.pinned if "pinned" in stated else None,
        importance=row.importance if "importance" in stated else None,
        check=Precondition.of(request.headers).check_match,
    )
    return _written(facts, written)


def _change(request: Request, facts: Facts, memory: str, fields: dict[str, Any]) -> Json:
    for name in fields:
        if name == "key":
            raise Refused("key", fields[name], "cannot change: it is what the fact is known by")
        if fields[name] is None and name in RowPatch.model_fields:
            raise Refused(name, None, "is null: leave the field out to keep its value")
    patch = parse(RowPatch, fields)
    change = FactChange(
        patch.value, patch.pinned, patch.importance, adopts=patch.source == "manual"
    )
    check = Precondition.of(request.headers).check_match
    return _written(facts, facts.change(_id(memory), change, check=check))


def _pin(request: Request, facts: Facts, memory: str, fields: dict[str, Any]) -> Json:
    change = FactChange(pinned=parse(Pin, fields).pinned)
    check = Precondition.of(request.headers).check_match
    return _written(facts, facts.change(_id(memory), change, check=check))


def _written(facts: Facts, written: FactWritten) -> Json:
    row = fact_json(written.fact, facts.scope)
    headers = {"ETag": etag(written.fact.version)}
    return succeeded(row, 201 if written.is_new else 200, headers)


def _id(memory: str) -> str:
    if not is_fact_id(memory):
        raise NotFound("fact", memory)
    return memory


agent_router = _router("/api/agents/{agentId}/memories", _agent_facts, "agent")
workspace_router = _router("/api/workspaces/{workspaceId}/memories", _workspace_facts, "workspace")
