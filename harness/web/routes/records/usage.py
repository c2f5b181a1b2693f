"""The route that shows the tokens used by an account, and their cost."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Query as QueryOf

from harness.billing.ledger import Dimension, day_of
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    Query,
    answers,
    refusals,
)
from workspaces.validation import StrictModel

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["usage"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class UsageDocument(StrictModel):
    """What was used, in rows and in total."""

    since: str
    until: str
    by: str
    rows: list[dict[str, Any]]
    total: dict[str, Any]
    prices: str


class UsageQuery(Query):
    by: Dimension = "day"
    since: str | None = None
    """The first day, as 2026-11-01; default: the first of this month."""
    until: str | None = None
    """The last day; default: today. Days are UTC."""


@router.get(
    "/usage",
    summary="Show tokens and dollars",
    responses=answers(UsageDocument),
)
def usage(caller: Caller, query: Annotated[UsageQuery, QueryOf()]) -> Json:
    """Show the usage of the account, or of the user if the key is a user's.

    Requests to a model without a price are counted in tokens only.
    """
    since, until = day_of("since", query.since), day_of("until", query.until)
    return Json(caller.usage.report(by=query.by, since=since, until=until).as_json())
