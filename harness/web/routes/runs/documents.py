"""The shapes of runs and of active memory over HTTP."""

from __future__ import annotations

from typing import Any

from harness.runs.active_memory import MemoryStatus
from harness.runs.run import RunSource, RunStatus
from harness.runs.runs import OnActive
from workspaces.validation import StrictModel


class RunUsage(StrictModel):
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_hour: int


class RunFailure(StrictModel):
    code: str
    message: str


class ResultDocument(StrictModel):
    type: str
    data: dict[str, Any]
    line: str


class ConvictionDocument(StrictModel):
    score: int
    action: str
    notes: str
    run_id: str
    at: str | None


class RunDocument(StrictModel):
    """A run."""

    id: str
    agent_id: str
    status: RunStatus
    source: RunSource
    prompt: str
    parent_run_id: str | None
    """The run whose decision this run examines again."""
    chain_id: str | None
    step: int | None
    """The place in the chain, from 0."""
    conversation_id: str | None
    turn_id: str | None
    session_id_before: str | None
    """The state of the session that the run continued; null if it started fresh."""
    session_id_after: str | None
    """The state of the session that a succeeded run left."""
    reply: str | None
    result: ResultDocument | None
    """The structured result, if the run ended with one."""
    outcome: str | None
    outcome_fields: dict[str, Any] | None
    resolution_status: str | None
    conviction: ConvictionDocument | None
    """The newest re-examination of its decision."""
    waiting: list[dict[str, Any]]
    """The calls that wait for an approval, or for the client."""
    error: RunFailure | None
    usage: RunUsage | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class RunHistory(StrictModel):
    runs: list[RunDocument]


class RunList(StrictModel):
    runs: list[RunDocument]
    next_cursor: str | None


class NewRun(StrictModel):
    prompt: str | None = None
    """Absent: the agent's `defaultPrompt`."""
    on_busy: OnActive = "reject"
    """`queue`: wait behind the agent's other runs. `reject`: refuse the run while the agent runs."""


class Cancelled(StrictModel):
    cancelled: bool


class MemorySummary(StrictModel):
    """The active memory of an agent."""

    enabled: bool
    has_session: bool
    session_updated_at: str | None
    runs_since_reset: int
    status: MemoryStatus


class MemoryDocument(MemorySummary):
    session_id: str | None
    """The state of the session that the next turn resumes."""


RUN_EXAMPLE: dict[str, Any] = {
    "id": "run_5f0c1f3c2a7d4e5b6c7d8e9f",
    "agentId": "agent_9b1f0f3c2a7d4e5b6c7d8e9f",
    "status": "succeeded",
    "source": "on_demand",
    "prompt": "Look at the open tasks.",
    "parentRunId": None,
    "chainId": None,
    "step": None,
    "conversationId": "conv_1a2b3c4d5e6f708192a3b4c5",
    "turnId": "turn_0a1b2c3d4e5f60718293a4b5",
    "sessionIdBefore": None,
    "sessionIdAfter": "ses_77aa88bb99cc00dd11ee22ff:2",
    "reply": "Two tasks are open.",
    "result": None,
    "outcome": None,
    "outcomeFields": None,
    "resolutionStatus": None,
    "conviction": None,
    "waiting": [],
    "error": None,
    "usage": {"input": 1200, "output": 40, "cacheRead": 0, "cacheWrite": 0, "cacheWriteHour": 0},
    "createdAt": "2026-11-18T08:00:00.000000Z",
    "startedAt": "2026-11-18T08:00:00.120000Z",
    "finishedAt": "2026-11-18T08:00:04.510000Z",
}
