"""Runs: turns of an agent that have a record of their own.

A run is asked for by a caller, by a schedule, by a chain, or to examine an earlier run again. It becomes one
event, whose turn does the work. The run's record changes in the batches that begin and end that turn, so it
never says anything else than the transcript.

    queued → running → succeeded | failed | cancelled | timed_out
    skipped: a tick of a schedule while a run was active
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from harness.messages.event import RUN_PREFIX, Event, UserSaid
from harness.messages.model_request import NO_USAGE, Usage, usage_of
from harness.transcripts.outcome import Ending
from harness.transcripts.outcome import Status as TurnStatus
from workspaces.conditions import ABSENT
from workspaces.ids import AgentId, ConversationId, RunId, TurnId
from workspaces.storage.records import Condition, JsonObject
from workspaces.timestamp import Stamp

RunStatus = Literal["queued", "running", "succeeded", "failed", "cancelled", "timed_out", "skipped"]
RunSource = Literal["on_demand", "schedule", "re_examine", "chain"]

FINAL: frozenset[RunStatus] = frozenset(
    {"succeeded", "failed", "cancelled", "timed_out", "skipped"}
)
"""The statuses that never change."""

StopRequest = Literal["cancel", "time"]
"""Why a run shall end early: a caller cancelled it, or it waited too long."""


@dataclass(frozen=True, slots=True)
class RunError:
    code: str
    message: str

    def as_json(self) -> JsonObject:
        return {"code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class Run:
    """The record of one run."""

    id: RunId
    agent_id: AgentId
    status: RunStatus
    source: RunSource
    prompt: str
    created_at: Stamp
    parent_id: RunId | None = None
    """The run whose decision this run examines again."""
    chain_id: str | None = None
    step: int | None = None
    """The place in the chain, from 0."""
    conversation_key: str | None = None
    """The conversation of its turn, chosen when the run leaves the agent's queue."""
    conversation_id: ConversationId | None = None
    turn_id: TurnId | None = None
    session_before: str | None = None
    """The state of the session that the run continued, as `<session>:<entry>`. None: it started fresh."""
    session_after: str | None = None
    """The state of the session that a succeeded run left."""
    reply: str | None = None
    error: RunError | None = None
    usage: Usage | None = None
    started_at: Stamp | None = None
    finished_at: Stamp | None = None
    waiting_since: Stamp | None = None
    stop: StopRequest | None = None
    result: JsonObject | None = None
    """The accepted result: a decision with its card, or the review of an earlier one."""
    review: JsonObject | None = None
    """For a re-examination: what its answer must keep, as the earlier decision's card was then."""
    outcome: str | None = None
    outcome_fields: JsonObject | None = None
    resolution_status: str | None = None
    counter: Condition = field(default=ABSENT, compare=False)
    """The counter of the record; ABSENT if it is not stored yet."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def leads_chain(self) -> bool:
        """True for the re-examination of a chain's decision that has to do the steps before its turn."""
        is_last = self.parent_id is not None and self.chain_id is not None
        return is_last and self.turn_id is None and not self.is_final

    @property
    def event_id(self) -> str:
        return f"{RUN_PREFIX}{self.id}"

    @property
    def own_key(self) -> str:
        """The key of the conversation that is this run's alone."""
        return f"{RUN_PREFIX}{self.id}"

    @property
    def place(self) -> str:
        """The sort key in the list of the agent's runs."""
        return f"{self.created_at} {self.id}"

    @property
    def event(self) -> Event:
        """The event that this run becomes."""
        key = self.conversation_key or self.own_key
        prompt = (UserSaid(content=self.prompt),)
        return Event(self.event_id, key, prompt, on_busy="queue", has_reserved_key=True)

    def stored(self) -> JsonObject:
        """Return the JSON of the record, without empty fields."""
        fields: JsonObject = {
            "agentId": self.agent_id,
            "status": self.status,
            "source": self.source,
            "prompt": self.prompt,
            "createdAt": self.created_at,
            "parentRunId": self.parent_id,
            "chainId": self.chain_id,
            "step": self.step,
            "conversationKey": self.conversation_key,
            "conversationId": self.conversation_id,
            "turnId": self.turn_id,
            "sessionIdBefore": self.session_before,
            "sessionIdAfter": self.session_after,
            "reply": self.reply,
            "error": self.error and self.error.as_json(),
            "usage": self.usage and self.usage.as_json(),
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "waitingSince": self.waiting_since,
            "stop": self.stop,
            "result": self.result,
            "review": self.review,
            "outcome": self.outcome,
            "outcomeFields": self.outcome_fields,
            "resolutionStatus": self.resolution_status,
        }
        return {name: value for name, value in fields.items() if value is not None}


def run_of(run_id: str, value: JsonObject, counter: Condition) -> Run:
    """Return the run from its record."""
    error, usage = value.get("error"), value.get("usage")
    return Run(
        id=RunId(run_id),
        agent_id=AgentId(value["agentId"]),
        status=value["status"],
        source=value["source"],
        prompt=value["prompt"],
        created_at=Stamp(value["createdAt"]),
        parent_id=value.get("parentRunId"),
        chain_id=value.get("chainId"),
        step=value.get("step"),
        conversation_key=value.get("conversationKey"),
        conversation_id=value.get("conversationId"),
        turn_id=value.get("turnId"),
        session_before=value.get("sessionIdBefore"),
        session_after=value.get("sessionIdAfter"),
        reply=value.get("reply"),
        error=None if error is None else RunError(error["code"], error["message"]),
        usage=None if usage is None else usage_of(usage),
        started_at=value.get("startedAt"),
        finished_at=value.get("finishedAt"),
        waiting_since=value.get("waitingSince"),
        stop=value.get("stop"),
        result=value.get("result"),
        review=value.get("review"),
        outcome=value.get("outcome"),
        outcome_fields=value.get("outcomeFields"),
        resolution_status=value.get("resolutionStatus"),
        counter=counter,
    )


def ended(run: Run, ending: Ending, usage: Usage, reply: str, at: Stamp) -> Run:
    """Return the run after its turn ended like this."""
    status, error = _status_and_error(ending, run.stop)
    return replace(
        run,
        status=status,
        error=error,
        usage=usage,
        reply=reply or None,
        finished_at=at,
        waiting_since=None,
        turn_id=ending.turn_id,
    )


def refused(run: Run, error: RunError, at: Stamp) -> Run:
    """Return the run after it ended before its turn began."""
    status: RunStatus = "failed"
    if run.stop is not None:  # it ended because someone wanted it to
        status = "timed_out" if run.stop == "time" else "cancelled"
    kept = error if status == "failed" else None
    return replace(run, status=status, error=kept, usage=NO_USAGE, finished_at=at)


def _status_and_error(
    ending: Ending, stop: StopRequest | None
) -> tuple[RunStatus, RunError | None]:
    """Return the status of a run, and its error if it failed, from the end of its turn."""
    match ending.status:
        case "done":
            return "succeeded", None
        case "out_of_time":
            return "timed_out", None
        case "interrupted":
            return ("timed_out" if stop == "time" else "cancelled"), None
        case "failed" if ending.failure is not None:
            return "failed", RunError(ending.failure.kind, ending.failure.reason)
        case status:
            return "failed", RunError(status, _REASONS.get(status, "the turn failed"))


_REASONS: dict[TurnStatus, str] = {
    "cut": "the answer reached the limit of output tokens",
    "out_of_steps": "the turn reached its limit of steps",
    "out_of_money": "the turn reached its own limit of dollars",
}
