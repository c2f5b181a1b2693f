"""Routes of blocks: memory of the caller's user in whole documents, replaced by compare-and-set.

These routes keep the names and shapes that clients of memory blocks know: underscores in the names, and lists
without an object around them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi import Query as QueryOf
from pydantic import ConfigDict, Field

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.memory.blocks.block import (
    BLOCK_TYPES,
    Block,
    BlockConflict,
    BlockPlace,
    BlockScope,
    BlockType,
)
from harness.memory.blocks.blocks import ScopeFilter
from harness.memory.blocks.condition import BlockCondition, any_version, parse_expected
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import ErrorDetail, Json, refused
from harness.web.http.precondition import Precondition, etag
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    TEXT,
    DeletionDocument,
    Query,
    answers,
    refusals,
    schema_of,
    takes,
)
from workspaces.conditions import ABSENT, ANY
from workspaces.errors import NotFound, Refused
from workspaces.ids import Version
from workspaces.search.kind import LIMIT_MAX
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/api/v1/memory",
    tags=["memory"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

_PLUS_AS_BLANK = re.compile(r" (?=\d\d:\d\d$)")
"""A `+` that a client did not encode in a query, before the offset of a time zone."""


class BlockModel(StrictModel):
    """A model whose JSON keys have underscores."""

    model_config = ConfigDict(alias_generator=None)


class BlockBody(BlockModel):
    id: str
    block_type: BlockType
    content: str
    scope: BlockScope
    agent_id: str | None
    created_at: str
    updated_at: str
    version: str


class BlockConflictBody(BlockModel):
    error: ErrorDetail
    block: BlockBody | None
    """The current block; null if there is none."""


class BlockLineBody(BlockModel):
    content: str
    score: float
    block_type: BlockType
    scope: BlockScope
    agent_id: str | None
    path: str
    line_number: int
    updated_at: str | None


class BlockPut(BlockModel):
    content: str
    expected_updated_at: str | None = None
    """The `updated_at` that you have read. Null: create the block, and fail if it exists."""


class RecallRequest(BlockModel):
    query: str | None = None
    """What to search for. Without it, the first lines are listed."""
    agent_id: str | None = None
    """Search the user's block with this agent, too."""
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = 10


class BlockListQuery(Query):
    scope: Literal["user", "agent", "all"] | None = None
    """`user` (the default), `agent`, or `all`: the blocks of the user and those with agents."""
    agent_id: str | None = None
    """The agent's id or name. Alone it means the scope `agent`."""


class BlockQuery(Query):
    scope: Literal["user", "agent"] | None = None
    agent_id: str | None = None
    """The agent's id or name. Alone it means the scope `agent`."""


class BlockDeleteQuery(BlockQuery):
    expected_updated_at: str | None = None
    """Delete the block only if this is its `updated_at`."""


TypePath = Annotated[
    str,
    Path(
        alias="type",
        description="`core` or `archival`.",
        json_schema_extra={"enum": list(BLOCK_TYPES)},
    ),
]

EXAMPLE: dict[str, Any] = {
    "id": "blk_0c1d2e3f4a5b6c7d8e9f0a1b",
    "block_type": "core",
    "content": "- Likes short answers",
    "scope": "user",
    "agent_id": None,
    "created_at": "2026-11-18T14:03:18.875130Z",
    "updated_at": "2026-11-18T14:03:18.875130Z",
    "version": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
}
PUT_EXAMPLE = {
    "content": EXAMPLE["content"],
    "expected_updated_at": EXAMPLE["updated_at"],
}
LINE_EXAMPLE = {
    "content": "- Harbour lease: the lawyer wants options before June",
    "score": 0.93,
    "block_type": "archival",
    "scope": "user",
    "agent_id": None,
    "path": "blocks/archival.md",
    "line_number": 3,
    "updated_at": EXAMPLE["updated_at"],
}
ETAG = {"ETag": {"description": "The block's version, in quotes.", "schema": TEXT}}
IF_MATCH = {
    "parameters": [
        {
            "name": "If-Match",
            "in": "header",
            "required": False,
            "description": "Only if the block has this version, as in `ETag`; `*`: only if it exists.",
            "schema": TEXT,
        }
    ]
}
CONFLICTS = answers(
    BlockConflictBody,
    {"error": {"code": "conflict", "message": "block 'core': …"}, "block": EXAMPLE},
    status=409,
    description="The block is not as expected; nothing was changed. `block` is the current one.",
)


@router.get(
    "/blocks",
    summary="List the memory blocks",
    responses=answers(list[BlockBody], [EXAMPLE]),
)
def list_blocks(caller: Caller, query: Annotated[BlockListQuery, QueryOf()]) -> Response:
    """List the blocks that exist: core before archival, the user's before those with agents."""
    scope: ScopeFilter | None = query.scope
    return Json([block.as_json() for block in caller.blocks.list(scope, query.agent_id)])


@router.get(
    "/blocks/{type}",
    summary="Read a memory block",
    responses={
        200: {**answers(BlockBody, EXAMPLE)[200], "headers": ETAG},
    },
)
def read_block(
    caller: Caller, block_type: TypePath, query: Annotated[BlockQuery, QueryOf()]
) -> Response:
    """Show a block with its time and version. A block that was never written does not exist."""
    return _answer(caller.blocks.get(_place(caller, block_type, query)))


@router.put(
    "/blocks/{type}",
    summary="Replace a memory block",
    responses={
        **answers(BlockBody, EXAMPLE, description="The block was replaced, or held this already."),
        **answers(BlockBody, EXAMPLE, status=201, description="The block is new."),
        **CONFLICTS,
        **refusals(422, *READING_JSON),
    },
    openapi_extra={**takes(schema_of(BlockPut), PUT_EXAMPLE), **IF_MATCH},
)
def write_block(
    request: Request,
    caller: Caller,
    block_type: TypePath,
    query: Annotated[BlockQuery, QueryOf()],
    fields: Fields,
) -> Response:
    """Replace the whole block, if it is as you have read it.

    Send the `updated_at` that you have read as `expected_updated_at`, or null to create the block. You can
    send the version as `If-Match` as well, or instead.
    """
    body = parse(BlockPut, fields)
    has_version = _version_condition(request)
    if "expected_updated_at" not in body.model_fields_set:
        if has_version is None:
            remedy = "send the `updated_at` that you have read, or null to create the block"
            raise Refused("expected_updated_at", None, "is required", remedy=remedy)
        stamp = ANY
    elif body.expected_updated_at is None:
        stamp = ABSENT
    else:
        stamp = parse_expected(body.expected_updated_at)
    condition = BlockCondition(stamp, has_version or any_version)
    place = _place(caller, block_type, query)
    try:
        written = caller.blocks.put(
            place, body.content, condition, by=caller.principal.author("api")
        )
    except BlockConflict as conflict:
        return _conflict(conflict)
    return _answer(written.block, 201 if written.created else 200)


@router.delete(
    "/blocks/{type}",
    summary="Delete a memory block",
    responses={**answers(DeletionDocument, {"deleted": True}), **CONFLICTS},
    openapi_extra=IF_MATCH,
)
def delete_block(
    request: Request,
    caller: Caller,
    block_type: TypePath,
    query: Annotated[BlockDeleteQuery, QueryOf()],
) -> Response:
    """Delete a block. Its history stays. Without a condition it is deleted whatever it holds."""
    stamp, has_version = ANY, _version_condition(request)
    if query.expected_updated_at is not None:
        stamp = parse_expected(_PLUS_AS_BLANK.sub("+", query.expected_updated_at))
    condition = BlockCondition(stamp, has_version or any_version)
    place = _place(caller, block_type, query)
    try:
        caller.blocks.delete(place, condition, by=caller.principal.author("api"))
    except BlockConflict as conflict:
        return _conflict(conflict)
    return Json({"deleted": True})


@router.post(
    "/recall",
    summary="Find lines of archival memory",
    responses={
        **answers(list[BlockLineBody], [LINE_EXAMPLE]),
        **refusals(422, *READING_JSON),
    },
    openapi_extra=takes(schema_of(RecallRequest), {"query": "Harbour lease", "limit": 10}),
)
def recall_blocks(caller: Caller, fields: Fields) -> Response:
    """Search the archival blocks of the user, and the one with the named agent. The best lines come first."""
    body = parse(RecallRequest, fields)
    lines = caller.blocks.recall(body.query or "", agent=body.agent_id, limit=body.limit)
    return Json([line.as_json() for line in lines])


def _place(caller: PrincipalServices, block_type: str, query: BlockQuery) -> BlockPlace:
    for known in BLOCK_TYPES:
        if known == block_type:
            return caller.blocks.place(known, query.scope, query.agent_id)
    raise NotFound("block", block_type, remedy=f"the blocks are {' and '.join(BLOCK_TYPES)}")


def _version_condition(request: Request) -> Callable[[Version | None], bool] | None:
    """Return a function that checks the version of a block by the headers, or None without conditions."""
    condition = Precondition.of(request.headers)
    if not condition.is_stated:
        return None

    def holds(version: Version | None) -> bool:
        match, none_match = condition.match, condition.none_match
        if match is not None and not match.match(version, weakly=False):
            return False
        return none_match is None or not none_match.match(version, weakly=True)

    return holds


def _answer(block: Block, status: int = 200) -> Response:
    headers = {"ETag": etag(block.version), "Cache-Control": "private, no-cache"}
    return Json(block.as_json(), status, headers)


def _conflict(conflict: BlockConflict) -> Response:
    """Return the refusal with the current block. Repeating the request cannot help."""
    answer = refused(conflict)
    block = None if conflict.block is None else conflict.block.as_json()
    body = {**json.loads(bytes(answer.body)), "block": block}
    return Json(body, answer.status_code, {"x-should-retry": "false"})
