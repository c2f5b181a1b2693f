"""Routes of active memory: its state, the states of all agents, and the reset."""

from __future__ import annotations

from fastapi import APIRouter

from harness.web.http.caller import documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import EVERYWHERE, answers, refusals
from harness.web.routes.runs.documents import MemoryDocument, MemorySummary
from harness.web.routes.runs.runs import OwnerCaller
from harness.web.routes.talk.turns import AgentPath

router = APIRouter(
    route_class=Route,
    prefix="/api/agents",
    tags=["runs"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

SUMMARY_EXAMPLE = {
    "enabled": True,
    "hasSession": True,
    "sessionUpdatedAt": "2026-11-18T08:00:04.510000Z",
    "runsSinceReset": 3,
    "status": "Carrying context",
}
EXAMPLE = {"sessionId": "ses_77aa88bb99cc00dd11ee22ff:14", **SUMMARY_EXAMPLE}


@router.get(
    "/memory-summary",
    summary="Show the active memory of all agents",
    responses=answers(
        dict[str, MemorySummary], {"agent_9b1f0f3c2a7d4e5b6c7d8e9f": SUMMARY_EXAMPLE}
    ),
)
def memory_summary(caller: OwnerCaller) -> Json:
    """Show the state of every agent, by its id."""
    summary = caller.runs.memory_summary()
    return Json({agent_id: view.summary_json() for agent_id, view in summary.items()})


@router.get(
    "/{id}/memory",
    summary="Show the active memory of an agent",
    responses=answers(MemoryDocument, EXAMPLE),
)
def show_memory(caller: OwnerCaller, agent: AgentPath) -> Json:
    """Show the session that chat and runs share.

    `runsSinceReset` counts the succeeded runs. The toggle is the agent's `config.activeMemory`.
    """
    return Json(caller.runs.memory(agent).as_json())


@router.post(
    "/{id}/memory/reset",
    summary="Reset the active memory of an agent",
    responses=answers(MemoryDocument, {**EXAMPLE, "sessionId": None, "status": "Fresh"}),
)
def reset_memory(caller: OwnerCaller, agent: AgentPath) -> Json:
    """Let the next turn start afresh. Messages stay visible, and a running turn changes nothing any more."""
    return Json(caller.runs.reset_memory(agent).as_json())
