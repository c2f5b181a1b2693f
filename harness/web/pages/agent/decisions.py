"""The decisions of all agents: what they decided, what came of it, and later looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Annotated, cast, get_args

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runs.decisions import CLOSED, DecisionView, ResolutionStatus
from harness.runs.run import Run
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.runs.runs import RunPath, begin
from workspaces.errors import Failure, Refused

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 50
"""Decisions on one page."""

LOOKED_MAX = 400
"""Runs that one page looks through. Agents without cards have runs without decisions."""

DOUBT_BELOW = 50
"""A later look that leaves less than half of the conviction asks for a person's attention."""

DOUBTED_LOOKED_MAX = 40
"""The newest runs of agents with cards that the overview looks through."""

STATUSES: tuple[ResolutionStatus, ...] = cast(
    "tuple[ResolutionStatus, ...]", get_args(ResolutionStatus)
)


@router.get("/decisions", response_model=None)
def decisions_page(
    request: Request,
    caller: Caller,
    card_type: Annotated[str, Query(alias="type")] = "",
    behind: str = "",
) -> Response:
    """Show the decisions of all agents, newest first; only those of a type, or behind an earlier one."""
    caller.runs.check_right()
    agents = {agent.id: agent for agent in caller.agents.list()}
    if not behind:
        for agent_id in agents:
            with suppress(
                Failure
            ):  # an unreadable workspace hides no decision of which there is a record
                caller.decisions.adopt(agent_id)
    views: list[DecisionView] = []
    following: str | None = None
    last, looked = behind, 0
    for run in newest_runs(caller, list(agents.values()), behind):
        if looked == LOOKED_MAX or len(views) == ROWS_MAX:
            following = last
            break
        looked, last = looked + 1, run.place
        view = caller.decisions.view(run)
        if view is not None and card_type in ("", view.decision.card.type):
            views.append(view)
    types = {agent.config.card for agent in agents.values() if agent.config.card}
    types |= {view.decision.card.type for view in views} | ({card_type} if card_type else set())
    return shown(
        request,
        "decisions.html",
        caller=caller,
        views=views,
        agents=agents,
        types=sorted(types),
        card_type=card_type,
        behind=behind,
        following=following,
        looked=looked,
        tally=caller.decisions.tally(views),
        statuses=STATUSES,
    )


@router.post("/runs/{id}/outcome", response_model=None)
def set_outcome(request: Request, caller: Caller, run_id: RunPath, form: Form) -> Response:
    """Note what came of a decision, or clear it. Fields that a program has noted stay."""
    caller.runs.check_right()
    if form.text("do") == "clear":
        caller.decisions.set_outcome(run_id, None)
    else:
        stated = form.text("status")
        status: ResolutionStatus | None = next((one for one in STATUSES if one == stated), None)
        if stated and status is None:
            raise Refused("status", stated, f"must be one of {', '.join(STATUSES)}")
        fields = caller.decisions.get(run_id).run.outcome_fields
        caller.decisions.set_outcome(run_id, form.text("outcome"), fields, status)
    if form.text("back") == "decisions":
        return led_to(request, "/decisions", type=form.text("type"), said="saved")
    return led_to(request, f"/runs/{run_id}", said="saved")


@router.post("/runs/{id}/re-examine", response_model=None)
async def re_examine(request: Request, caller: Caller, run_id: RunPath, form: Form) -> Response:
    """Start a run that examines the decision again, and show that run."""
    del form
    run = await run_in_thread(caller.runs.re_examine, run_id)
    begin(request, caller, run.agent_id)
    return led_to(request, f"/runs/{run.id}")


def newest_runs(
    caller: PrincipalServices, agents: Sequence[AgentRecord], behind: str = ""
) -> Iterator[Run]:
    """Yield the runs of several agents, newest first; only those behind a run's `place`."""
    lists = (caller.decisions.records.newest_first(agent.id, behind) for agent in agents)
    return merge(*lists, key=lambda run: run.place, reverse=True)


def doubted(caller: PrincipalServices, agents: Sequence[AgentRecord]) -> Iterator[DecisionView]:
    """Yield the open decisions of which a later look has left little."""
    deciding = [agent for agent in agents if agent.config.card]
    for run in islice(newest_runs(caller, deciding), DOUBTED_LOOKED_MAX):
        if run.resolution_status in CLOSED:
            continue
        view = caller.decisions.view(run)
        if view is not None and view.conviction and view.conviction["score"] < DOUBT_BELOW:
            yield view
