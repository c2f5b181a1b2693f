"""The runs of agents and their decisions, over HTTP.

    run = await client.runs.wait((await client.runs.start("judge", "Shall we release?")).id)
    look = await client.runs.re_examine(run.id)
    await client.runs.set_outcome(run.id, "right", status="resolved")

Runs need a key of the account, and act as its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from harness.client.connection import Connection
from harness.client.records import RecordReference, reference_of
from harness.messages.model_request import Usage, usage_of
from workspaces.storage.records import JsonObject

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 2.0
"""Seconds between two looks at a run that is waited for."""

PAGE = 50

Resolution = Literal["pending", "active", "resolved", "expired"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result that a run ended with: a decision, or the re-examination of one."""

    type: str
    data: JsonObject
    line: str


@dataclass(frozen=True, slots=True)
class Conviction:
    """The newest valid re-examination of a decision."""

    score: int
    action: str
    notes: str
    run_id: str
    at: str | None


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run as the server has it."""

    id: str
    agent_id: str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled", "timed_out", "skipped"]
    source: Literal["on_demand", "schedule", "re_examine", "chain"]
    prompt: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    reply: str | None
    result: RunResult | None
    conviction: Conviction | None
    outcome: str | None
    outcome_fields: JsonObject | None
    resolution_status: Resolution | None
    parent_run_id: str | None
    chain_id: str | None
    step: int | None
    conversation_id: str | None
    turn_id: str | None
    session_id_before: str | None
    session_id_after: str | None
    waiting: tuple[JsonObject, ...]
    error_code: str | None
    error_message: str | None
    usage: Usage | None

    @property
    def is_final(self) -> bool:
        return self.status not in {"queued", "running"}


@dataclass(frozen=True, slots=True)
class AgentDecision:
    """A decision as the server lists it."""

    run_id: str
    at: str | None
    type: str
    line: str
    data: JsonObject
    outcome: str | None
    resolution_status: Resolution | None
    conviction: Conviction | None


@dataclass(frozen=True, slots=True)
class DecisionTally:
    """How many decisions turned out good and bad."""

    good: int
    bad: int
    hit_rate: float


class RunClient:
    """The runs of an account. An agent is named by its id, its name, or its record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def start(
        self,
        agent: RecordReference,
        prompt: str | None = None,
        *,
        on_busy: Literal["reject", "queue"] = "reject",
    ) -> AgentRun:
        """Start a run with this prompt, else with the agent's `defaultPrompt`, and return it at once.

        Raises: Refused without any prompt; AgentRunning, unless the run may wait.
        """
        body = {"onBusy": on_busy, **({} if prompt is None else {"prompt": prompt})}
        return _run(await self._ask("POST", f"{_agent(agent)}/runs", fields=body))

    async def list(
        self, agent: RecordReference, *, limit: int | None = None
    ) -> AsyncGenerator[AgentRun]:
        """Yield the runs of an agent, newest first."""
        query, told = {"limit": str(PAGE)}, 0
        while limit is None or told < limit:
            page = await self._ask("GET", f"{_agent(agent)}/runs", query=query)
            rest = None if limit is None else limit - told
            for one in page["runs"][:rest]:
                yield _run(one)
            told += len(page["runs"])
            if page["nextCursor"] is None:
                return
            query["cursor"] = page["nextCursor"]

    async def get(self, run_id: str) -> AgentRun:
        """Return a run.

        Raises: NotFound.
        """
        return _run(await self._ask("GET", _path(run_id)))

    async def wait(self, run_id: str) -> AgentRun:
        """Return a run when it has ended, or when it waits for an answer."""
        pause = PAUSE_S_MIN
        while True:
            run = await self.get(run_id)
            if run.is_final or run.waiting:
                return run
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run, wherever it is. Return False if it has ended already."""
        return (await self._ask("POST", f"{_path(run_id)}/cancel"))["cancelled"]

    async def re_examine(self, run_id: str) -> AgentRun:
        """Start a run that examines the decision of this one again, and return the new run at once.

        Raises: NotFound; Refused if there is no decision that may be examined; AgentRunning.
        """
        return _run(await self._ask("POST", f"{_path(run_id)}/re-examine"))

    async def re_examinations(self, run_id: str) -> tuple[AgentRun, ...]:
        """Return the runs that examined a decision again, oldest first."""
        found = await self._ask("GET", f"{_path(run_id)}/re-examinations")
        return tuple(map(_run, found["runs"]))

    async def set_outcome(
        self,
        run_id: str,
        outcome: str | None,
        *,
        fields: Mapping[str, Any] | None = None,
        status: Resolution | None = None,
    ) -> AgentRun:
        """Note what came of a decision. None as the outcome clears outcome, fields and status.

        Raises: NotFound; Refused for a run without a decision.
        """
        body = {"outcome": outcome, "fields": fields, "resolutionStatus": status}
        given = {name: value for name, value in body.items() if name == "outcome" or value}
        return _run(await self._ask("POST", f"{_path(run_id)}/outcome", fields=given))

    async def decisions(
        self, agent: RecordReference, *, limit: int = 5
    ) -> tuple[AgentDecision, ...]:
        """Return the newest decisions of an agent, at most 20."""
        query = {"limit": str(limit)}
        found = await self._ask("GET", f"{_agent(agent)}/decisions", query=query)
        return tuple(map(_decision, found["decisions"]))

    async def tally(self, agent: RecordReference) -> DecisionTally | None:
        """Return the numbers of good and bad decisions of an agent, by their outcomes. Return None without
        such outcomes."""
        tally = (await self._ask("GET", f"{_agent(agent)}/decisions"))["tally"]
        return tally and DecisionTally(tally["good"], tally["bad"], tally["hitRate"])

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        return (await self._connection.ask(method, path, **request)).json


def _agent(agent: RecordReference) -> str:
    return f"/api/agents/{reference_of(agent)}"


def _path(run_id: str) -> str:
    return f"/api/runs/{quote(run_id, safe='')}"


def _run(data: JsonObject) -> AgentRun:
    error: JsonObject = data["error"] or {}
    result: JsonObject | None = data["result"]
    return AgentRun(
        id=data["id"],
        agent_id=data["agentId"],
        status=data["status"],
        source=data["source"],
        prompt=data["prompt"],
        created_at=data["createdAt"],
        started_at=data["startedAt"],
        finished_at=data["finishedAt"],
        reply=data["reply"],
        result=RunResult(result["type"], result["data"], result["line"]) if result else None,
        conviction=_conviction(data["conviction"]),
        outcome=data["outcome"],
        outcome_fields=data["outcomeFields"],
        resolution_status=data["resolutionStatus"],
        parent_run_id=data["parentRunId"],
        chain_id=data["chainId"],
        step=data["step"],
        conversation_id=data["conversationId"],
        turn_id=data["turnId"],
        session_id_before=data["sessionIdBefore"],
        session_id_after=data["sessionIdAfter"],
        waiting=tuple(data["waiting"]),
        error_code=error.get("code"),
        error_message=error.get("message"),
        usage=data["usage"] and usage_of(data["usage"]),
    )


def _decision(data: JsonObject) -> AgentDecision:
    return AgentDecision(
        run_id=data["runId"],
        at=data["at"],
        type=data["type"],
        line=data["line"],
        data=data["data"],
        outcome=data["outcome"],
        resolution_status=data["resolutionStatus"],
        conviction=_conviction(data["conviction"]),
    )


def _conviction(data: JsonObject | None) -> Conviction | None:
    if data is None:
        return None
    return Conviction(data["score"], data["action"], data["notes"], data["runId"], data["at"])
