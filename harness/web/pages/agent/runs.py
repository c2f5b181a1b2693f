"""The runs of an agent, one run, and the agent's active memory."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.conversation import Conversation
from harness.runs.active_memory import RUNS_BEFORE_WARNING, MemoryView
from harness.runs.decisions import decision_in, review_in
from harness.runs.run import Run
from harness.runs.runs import RunView
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.transcript import Entry
from harness.web.http.caller import Caller, application_of
from harness.web.pages.agent.conversation import agent_of_id, places_of
from harness.web.pages.agent.decisions import STATUSES
from harness.web.pages.agent.transcript_view import turns_of
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.markdown import rendered
from harness.web.pages.parts.rendering import is_owner, led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.runs.runs import RunPath, begin
from harness.web.routes.talk.turns import AgentPath
from workspaces.errors import NotFound
from workspaces.timestamp import moment_of, stamp_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

RUNS_MAX = 50
"""Runs on one page."""

ENTRIES_MAX = 60
"""Entries of a run's turn on its page. The conversation has all of them."""


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
        lines={one.run.id: made.line for one in found if (made := decision_in(one.run))},
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
    conversation = _conversation(caller, run)
    entries = [] if conversation is None else _entries(caller, conversation, run)
    return shown(
        request,
        "run.html",
        caller=caller,
        run=run,
        waiting=view.waiting,
        agent=agent_of_id(caller, run.agent_id),
        reply=rendered(run.reply) if run.reply else None,
        seconds=_seconds(view),
        dollars=_dollars(caller, run),
        is_own=run.conversation_key == run.own_key,
        decided=caller.decisions.view(run),
        review=review_in(run),
        looks=[(one.run, review_in(one.run)) for one in caller.runs.re_examinations(run.id)][::-1],
        turns=turns_of(entries),
        steps=sum(entry.message.role == "assistant" for entry in entries),
        places=places_of(caller, conversation) if conversation else {},
        statuses=STATUSES,
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


def is_long(view: MemoryView) -> bool:
    return view.runs > RUNS_BEFORE_WARNING


def _seconds(view: RunView) -> float | None:
    run = view.run
    if run.started_at is None or run.finished_at is None:
        return None
    return round((moment_of(run.finished_at) - moment_of(run.started_at)).total_seconds(), 1)


def _conversation(caller: PrincipalServices, run: Run) -> Conversation | None:
    """Return the conversation of a run; None before it began, or if the conversation was deleted."""
    if run.conversation_id is None:
        return None
    try:
        return caller.conversations.get(run.conversation_id)
    except NotFound:
        return None


def _entries(caller: PrincipalServices, conversation: Conversation, run: Run) -> list[Entry]:
    """Return the first entries of the run's turn."""
    transcript = caller.conversations.transcript(conversation)
    before = 0
    if run.session_before is not None:
        before = int(run.session_before.rpartition(":")[2])
    elif run.conversation_key != run.own_key:  # it began the session afresh, behind older ones
        until = run.finished_at or run.started_at or run.created_at
        before = max(
            (one.first - 1 for one in transcript.sessions() if one.started_at <= until), default=0
        )
    entries = transcript.page(ENTRIES_MAX, after=before)
    return [entry for entry in entries if entry.turn_id == run.turn_id]


def _dollars(caller: PrincipalServices, run: Run) -> float | None:
    """Return the cost of a run: noted if its conversation is its own, else by the price of its model."""
    if run.usage is None or run.conversation_id is None:
        return None
    if run.conversation_key == run.own_key:
        days = (
            moment_of(run.created_at).date(),
            moment_of(run.finished_at or run.created_at).date(),
        )
        of = ("conversation", run.conversation_id)
        return caller.usage.report(by="purpose", since=days[0], until=days[1], of=of).total.dollars
    agent = agent_of_id(caller, run.agent_id)
    model = (agent.config.model if agent else None) or caller.settings.model
    price = caller.usage.ledger.prices.find(model)
    return None if price is None else price.of(run.usage) / 1e9
