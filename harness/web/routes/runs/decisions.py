"""Routes of decisions: list, outcome, re-examine."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Query as QueryOf
from pydantic import Field

from harness.runs.decisions import ResolutionStatus
from harness.runs.result_tools import LISTED, LISTED_MAX
from harness.runs.runs import RunView
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.body import JsonObject, read_as, read_optional_as
from harness.web.http.caller import address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    Count,
    Query,
    answers,
    refusals,
    schema_of,
    takes,
)
from harness.web.routes.runs.documents import (
    RUN_EXAMPLE,
    ConvictionDocument,
    RunDocument,
    RunHistory,
)
from harness.web.routes.runs.runs import OwnerCaller, RunPath, begin
from harness.web.routes.talk.turns import AgentPath
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/api",
    tags=["decisions"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class DecisionDocument(StrictModel):
    """A decision, with what came of it."""

    run_id: str
    at: str | None
    type: str
    line: str
    data: dict[str, Any]
    outcome: str | None
    resolution_status: str | None
    conviction: ConvictionDocument | None


class Tally(StrictModel):
    good: int
    bad: int
    hit_rate: float


class DecisionList(StrictModel):
    decisions: list[DecisionDocument]
    tally: Tally | None
    """How many decisions were good, by their outcomes; null without such outcomes."""


class DecisionQuery(Query):
    limit: Annotated[Count, Field(le=LISTED_MAX)] = LISTED


class NewOutcome(StrictModel):
    outcome: str | None
    """What came of the decision; null clears it, with fields and status."""
    fields: dict[str, Any] | None = None
    resolution_status: ResolutionStatus | None = None


class NothingMore(StrictModel):
    """A body without fields."""


DECISION_EXAMPLE: JsonObject = {
    "runId": RUN_EXAMPLE["id"],
    "at": "2026-11-18T08:00:04.510000Z",
    "type": "decision",
    "line": "WAIT · range unresolved",
    "data": {"verdict": "WAIT", "reason": "range unresolved"},
    "outcome": None,
    "resolutionStatus": None,
    "conviction": None,
}


@router.get(
    "/agents/{id}/decisions",
    summary="List an agent's decisions",
    responses=answers(DecisionList, {"decisions": [DECISION_EXAMPLE], "tally": None}),
)
def list_decisions(
    caller: OwnerCaller, agent: AgentPath, query: Annotated[DecisionQuery, QueryOf()]
) -> Json:
    """List the newest decisions, as the tool `get_my_decisions` does for the agent itself."""
    agent_id = caller.agents.get(agent).id
    views = caller.decisions.list(agent_id, limit=query.limit)
    tally = caller.decisions.tally(caller.decisions.list(agent_id))
    return Json({"decisions": [view.as_json() for view in views], "tally": tally})


@router.post(
    "/runs/{id}/outcome",
    summary="Note what came of a decision",
    responses={**answers(RunDocument, RUN_EXAMPLE), **refusals(*READING_JSON)},
    openapi_extra=takes(schema_of(NewOutcome), {"outcome": "win", "resolutionStatus": "resolved"}),
)
def set_outcome(
    caller: OwnerCaller,
    run_id: RunPath,
    new: Annotated[NewOutcome, Depends(read_as(lambda fields: parse(NewOutcome, fields)))],
) -> Json:
    """Note the outcome of a run's decision. The decision itself never changes."""
    status = new.resolution_status
    run = caller.decisions.set_outcome(run_id, new.outcome, new.fields, status)
    return Json(caller.runs.view(run).as_json())


@router.post(
    "/runs/{id}/re-examine",
    summary="Examine a decision again",
    status_code=202,
    responses={
        **answers(RunDocument, RUN_EXAMPLE, status=202, description="The new run is stored."),
        **refusals(409, 429, *READING_JSON),
    },
)
async def re_examine(
    request: Request,
    caller: OwnerCaller,
    run_id: RunPath,
    body: Annotated[NothingMore, Depends(read_optional_as(lambda f: parse(NothingMore, f)))],
) -> Json:
    """Start a run of the same agent that examines a run's decision again.

    The server writes its prompt from the decision, which does not change. For the decision of a chain, the
    run does the chain's earlier steps first; they are not told of the decision.
    """
    del body
    run = await run_in_thread(caller.runs.re_examine, run_id)
    begin(request, caller, run.agent_id)
    url = address_of(request, f"/api/runs/{run.id}")
    return Json(RunView(run).as_json(), 202, {"Location": url})


@router.get(
    "/runs/{id}/re-examinations",
    summary="List the re-examinations of a decision",
    responses=answers(RunHistory, {"runs": [RUN_EXAMPLE]}),
)
def list_re_examinations(caller: OwnerCaller, run_id: RunPath) -> Json:
    """List the runs that examined this run's decision again, oldest first."""
    views = caller.runs.re_examinations(run_id)
    return Json({"runs": [view.as_json() for view in views]})
