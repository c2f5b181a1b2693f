"""The runs of an agent, one run, and the agent's active memory."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.composition import PrincipalServices
from harness.runs.active_memory import RUNS_BEFORE_WARNING, MemoryView
from harness.runs.runs import RunView
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import Caller, application_of
from harness.web.pages.agent.conversation import agent_of_id
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.markdown import rendered
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.runs.runs import RunPath, begin
from harness.web.routes.talk.turns import AgentPath
from workspaces.timestamp import moment_of, stamp_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

RUNS_MAX = 50
"""Runs on one page."""


@router.get("/a/{id}/runs", response_model=None)
def runs_page(request: Request, caller: Caller, reference: AgentPath, behind: str = "") -> Response:
    agent = caller.agents.get(reference)
    found = caller.runs.list(agent.id, behind=behind, limit=RUNS_MAX + 1)
    now = caller.clock.now()
    schedule = agent.config.schedule
    tick = schedule.next_after(now) if schedule else None
    return shown(
        request,
        "runs.html",
        caller=caller,
        agent=agent,
        runs=found[:RUNS_MAX],
        following=found[RUNS_MAX - 1].run.place if len(found) > RUNS_MAX else None,
        behind=behind,
        next_tick=stamp_of(tick) if tick else None,
    )


@router.post("/a/{id}/runs", response_model=None)
async def start_run(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    """Start a run. It waits if the agent runs already."""
    limiter, account_id = application_of(request).limiter, caller.principal.account_id
    await run_in_thread(limiter.check, account_id, waits=False)
    prompt = form.lines("prompt").strip() or None
    run = await run_in_thread(caller.runs.start, reference, prompt, on_busy="queue")
    begin(request, caller, run.agent_id)
    return led_to(request, f"/runs/{run.id}")


@router.get("/runs/{id}", response_model=None)
def run_page(request: Request, caller: Caller, run_id: RunPath) -> Response:
    view = caller.runs.get(run_id)
    run = view.run
    return shown(
        request,
        "run.html",
        caller=caller,
        run=run,
        waiting=view.waiting,
        agent=agent_of_id(caller, run.agent_id),
        reply=rendered(run.reply) if run.reply else None,
        seconds=_seconds(view),
        dollars=_dollars(caller, view),
    )


@router.post("/runs/{id}/cancel", response_model=None)
async def cancel_run(request: Request, caller: Caller, run_id: RunPath, form: Form) -> Response:
    del form
    is_cancelled = await caller.runs.cancel(run_id)
    return led_to(request, f"/runs/{run_id}", said="cancelled" if is_cancelled else "nothing")


@router.post("/a/{id}/memory", response_model=None)
def change_memory(request: Request, caller: Caller, reference: AgentPath, form: Form) -> Response:
    """Turn active memory on or off, or reset it."""
    agent = caller.agents.get(reference)
    deed = form.text("do")
    if deed == "reset":
        caller.runs.reset_memory(agent.id)
    else:
        caller.runs.set_memory(agent.id, is_enabled=deed == "on")
    said = {"reset": "memory-reset", "on": "memory-on"}.get(deed, "memory-off")
    if form.text("back") == "overview":
        return led_to(request, "/", said=said)
    return led_to(request, f"/a/{agent.id}", said=said)


def active_memory_of(caller: PrincipalServices, agent_id: str) -> MemoryView | None:
    """Return the agent's active memory. Only the owner has one: return None for anyone else."""
    if not is_owner(caller):
        return None
    return caller.runs.memory(agent_id)


def is_owner(caller: PrincipalServices) -> bool:
    """Return True if the caller may see runs, which act as the account's owner."""
    principal = caller.principal
    return principal.may_configure and principal.user_id == principal.owner.id


def is_long(view: MemoryView) -> bool:
    return view.runs > RUNS_BEFORE_WARNING


def _seconds(view: RunView) -> float | None:
    run = view.run
    if run.started_at is None or run.finished_at is None:
        return None
    return round((moment_of(run.finished_at) - moment_of(run.started_at)).total_seconds(), 1)


def _dollars(caller: PrincipalServices, view: RunView) -> float | None:
    """Return the cost of the run's conversation, if it has one of its own."""
    run = view.run
    if run.conversation_id is None or run.conversation_key != run.own_key:
        return None
    report = caller.usage.report(by="purpose", of=("conversation", run.conversation_id))
    return report.total.dollars
