"""The route that finds the best lines of a workspace for a question."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as QueryOf
from pydantic import Field

from harness.memory.recall import CutMode, answer, recall, since_of
from harness.web.http.caller import CallerWorkspace, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import in_camel_case, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    Count,
    Query,
    answers,
    refusals,
)
from workspaces.history.history import HEAD
from workspaces.search.kind import MemoryKind
from workspaces.search.recall import Scope
from workspaces.validation import StrictModel

router = APIRouter(
    route_class=Route,
    prefix="/v1/workspaces/{id}",
    tags=["recall"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class RecallHitDocument(StrictModel):
    """A line that was found."""

    path: str
    line_number: int
    content: str
    score: float
    workspace: str
    kind: str
    updated_at: str | None
    author: str | None
    revision: str | None
    why: list[str]


class RecallCutDocument(StrictModel):
    """Where the list of hits was cut."""

    shown: int
    behind: int
    lowest: float


class RecallDocument(StrictModel):
    hits: list[RecallHitDocument]
    next_cursor: str | None
    cut: RecallCutDocument | None
    nothing_known: bool


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
    cut: CutMode = "auto"
    """`auto` shows the lines from half of the best score on, and none if nothing bears on the question. `off`
    shows every line up to the limit."""


@router.get(
    "/recall",
    summary="Find lines by their meaning",
    responses=answers(RecallDocument),
)
def recall_lines(place: CallerWorkspace, query: Annotated[RecallQuery, QueryOf()]) -> Json:
    """Find lines, best matches first, with the reasons of each match.

    `cut` says how many lines are shown, how many were found behind the cut, and the lowest score shown. It is
    null with `cut=off` and for an empty answer. `nothingKnown` is true if no line bears on the question.

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
    found = recall(places, query.query, limit=query.limit, scope=scope, view=query.revision)
    reason = place.recall.stale_reason
    headers = {"X-Harness-Note": f"the index may be out of date: {reason}"} if reason else {}
    shown = answer(found, query.query, query.cut)
    document = {
        **whole("hits", (in_camel_case(hit.as_json()) for hit in shown.hits)),
        "cut": shown.cut.as_json() if shown.cut else None,
        "nothingKnown": shown.nothing_known,
    }
    return Json(document, headers=headers)
