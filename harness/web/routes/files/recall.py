"""The route that finds the best lines of a workspace for a question."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as QueryOf
from pydantic import Field

from harness.memory.recall import recall, since_of
from harness.web.http.caller import CallerWorkspace, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import in_camel_case, page_schema, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    NUMBER,
    TEXT,
    TEXT_OR_NULL,
    Count,
    Query,
    answers,
    list_of,
    object_of,
    refusals,
)
from workspaces.history.history import HEAD
from workspaces.search.kind import MemoryKind
from workspaces.search.recall import Scope

router = APIRouter(
    route_class=Route,
    prefix="/v1/workspaces/{id}",
    tags=["recall"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

HIT = object_of(
    {
        "path": TEXT,
        "lineNumber": NUMBER,
        "content": TEXT,
        "score": {"type": "number"},
        "workspace": TEXT,
        "updatedAt": TEXT_OR_NULL,
        "author": TEXT_OR_NULL,
        "revision": TEXT_OR_NULL,
        "why": list_of(TEXT),
    }
)


class RecallQuery(Query):
    query: Annotated[str, Field(max_length=10_000)]
    """A question, some words, a name, an id or a date. An empty query lists lines in order."""
    limit: Annotated[Count, Field(le=1_000)] = 10
    path: str | None = None
    """Only in this file, directory or pattern, as in `notes/*`."""
    kind: MemoryKind | None = None
    since: str | None = None
    """Only lines written on this day or later."""
    by: str | None = None
    """Only lines by this author: a name, the id of an agent or a conversation, or a source such as `turn`."""
    revision: str = HEAD
    """Search the state at this revision."""


@router.get(
    "/recall",
    summary="Find lines by their meaning",
    response_model=None,
    responses=answers(page_schema("hits", HIT)),
)
def recall_lines(place: CallerWorkspace, query: Annotated[RecallQuery, QueryOf()]) -> Json:
    """Find lines, best matches first, with the reasons of each match.

    If a name, id or path occurs in one line only, that line comes first. If the disk takes no write, the
    index stays as it is, and the header `X-Harness-Note` says so.
    """
    scope = Scope(
        (query.path,) if query.path else (),
        (query.kind,) if query.kind else (),
        since_of(query.since) if query.since is not None else None,
        query.by,
    )
    places = [(place.record.name, place)]
    hits = recall(places, query.query, limit=query.limit, scope=scope, view=query.revision)
    reason = place.recall.stale_reason
    headers = {"X-Harness-Note": f"the index may be out of date: {reason}"} if reason else {}
    return Json(whole("hits", (in_camel_case(hit.as_json()) for hit in hits)), headers=headers)
