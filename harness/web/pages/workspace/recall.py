"""Recall: a question, and the lines that answer it, with the reason for each."""

from __future__ import annotations

from typing import Any, cast, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.memory.recall import RecallAnswer, answer, recall, since_of
from harness.web.http.caller import Caller, CallerWorkspace
from harness.web.pages.parts.rendering import shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import Failure
from workspaces.search.kind import MemoryKind
from workspaces.search.recall import Scope
from workspaces.workspace.workspace import Workspace

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/w/{id}")

LIMIT = 20
"""Lines that are shown. More than a person compares."""

KINDS: tuple[str, ...] = get_args(MemoryKind)


@router.get("/recall", response_model=None)
def recall_page(
    request: Request,
    caller: Caller,
    place: CallerWorkspace,
    q: str = "",
    path: str = "",
    kind: str = "",
    since: str = "",
    by: str = "",
    cut: str = "",
) -> Response:
    stated = {"q": q, "path": path, "kind": kind, "since": since, "by": by, "cut": cut}
    found, failure = _found(place, stated)
    return shown(
        request,
        "recall.html",
        caller=caller,
        status=200 if failure is None else 400,
        record=place.record,
        asked=stated,
        is_filtered=any((path, kind, since, by)),
        kinds=KINDS,
        hits=found.hits,
        cut=found.cut,
        failure=failure,
        limit=LIMIT,
    )


def _found(place: Workspace, stated: dict[str, Any]) -> tuple[RecallAnswer, str | None]:
    """Return the lines, or the sentence that says which filter is wrong."""
    if not stated["q"].strip():
        return answer((), ""), None
    kind = stated["kind"]
    kinds = (cast(MemoryKind, kind),) if kind in KINDS else ()
    try:
        since = since_of(stated["since"]) if stated["since"] else None
        paths = (stated["path"],) if stated["path"] else ()
        scope = Scope(paths, kinds, since, stated["by"] or None)
        places = [(place.record.name, place)]
        hits = recall(places, stated["q"], limit=LIMIT, scope=scope)
        return answer(hits, stated["q"], "off" if stated["cut"] == "off" else "auto"), None
    except Failure as failure:
        return answer((), ""), f"{failure}{'; ' + failure.remedy if failure.remedy else ''}"
