"""Routes of runs: start, list, show and cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import Field

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runs.runs import RunView
from harness.runtime.async_bridge import run_in_thread
from harness.turns.worker_pool import WorkerPool
from harness.web.http.body import JsonObject, read_optional_as
from harness.web.http.caller import (
    USER_HEADER,
    Caller,
    address_of,
    application_of,
    documented_bearer,
)
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
from harness.web.routes.runs.documents import RUN_EXAMPLE, Cancelled, NewRun, RunDocument, RunList
from harness.web.routes.talk.turns import AgentPath
from workspaces.errors import Refused
from workspaces.ids import AgentId
from workspaces.validation import parse

PAGE_MAX = 100

router = APIRouter(
    route_class=Route,
    prefix="/api",
    tags=["runs"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

RunPath = Annotated[str, Path(alias="id")]


async def _owner(request: Request, caller: Caller) -> PrincipalServices:
    """Return the services of the account's owner.

    Raises: Forbidden for a user's key; Refused for a request that names a user.
    """
    if caller.principal.may_configure and USER_HEADER in request.headers:
        rule = "cannot be used here: runs act as the account's owner"
        raise Refused(USER_HEADER, None, rule, remedy="leave the header out")
    caller.runs.check_right()
    return caller


OwnerCaller = Annotated[PrincipalServices, Depends(_owner)]


class RunPage(Query):
    limit: Annotated[Count, Field(le=PAGE_MAX)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The `nextCursor` of the previous page."""


def _parse_new(fields: JsonObject) -> NewRun:
    return parse(NewRun, fields)


@router.post(
    "/agents/{id}/runs",
    summary="Start a run",
    status_code=202,
    responses={
        **answers(RunDocument, RUN_EXAMPLE, status=202, description="The run is stored."),
        **refusals(409, 429, *READING_JSON),
    },
    openapi_extra=takes(schema_of(NewRun), {"prompt": "Look at the open tasks."}),
)
async def start_run(
    request: Request,
    caller: OwnerCaller,
    agent: AgentPath,
    new: Annotated[NewRun, Depends(read_optional_as(_parse_new))],
) -> Json:
    """Start a run of the agent with this prompt, else with its `defaultPrompt`.

    The run takes place even if this server stops. It acts as the account's owner.
    """
    limiter, account_id = application_of(request).limiter, caller.principal.account_id
    await run_in_thread(limiter.check, account_id, waits=False)
    run = await run_in_thread(caller.runs.start, agent, new.prompt, on_busy=new.on_busy)
    begin(request, caller, run.agent_id)
    url = address_of(request, f"/api/runs/{run.id}")
    return Json(RunView(run).as_json(), 202, {"Location": url})


def begin(request: Request, caller: PrincipalServices, agent_id: AgentId) -> None:
    """Let this server bring the agent's runs to their end."""
    worker_pool: WorkerPool = request.app.state.worker_pool
    work: Callable[[], Awaitable[object]] = lambda: caller.runs.work_off(agent_id)  # noqa: E731
    worker_pool.begin(f"runs of {agent_id}", work)


@router.get(
    "/agents/{id}/runs",
    summary="List the runs of an agent",
    responses=answers(RunList, {"runs": [RUN_EXAMPLE], "nextCursor": None}),
)
def list_runs(caller: OwnerCaller, agent: AgentPath, query: Annotated[RunPage, QueryOf()]) -> Json:
    """List the runs, newest first."""
    rows = caller.runs.list(agent, behind=query.cursor or "", limit=query.limit + 1)
    shown = rows[: query.limit]
    following = shown[-1].run.place if len(rows) > query.limit else None
    return Json({"runs": [view.as_json() for view in shown], "nextCursor": following})


@router.get(
    "/runs/{id}",
    summary="Show a run",
    responses=answers(RunDocument, RUN_EXAMPLE),
)
def show_run(caller: OwnerCaller, run_id: RunPath) -> Json:
    return Json(caller.runs.get(run_id).as_json())


@router.post(
    "/runs/{id}/cancel",
    summary="Cancel a run",
    responses={**answers(Cancelled, {"cancelled": True}), **refusals(409)},
)
async def cancel_run(caller: OwnerCaller, run_id: RunPath) -> Json:
    """Cancel a run, wherever it is. `cancelled` is false if it has ended already."""
    return Json({"cancelled": await caller.runs.cancel(run_id)})
