"""Active memory: whether an agent's chat and its runs share one session, and where that session stands.

    active-memory:<account>    <agent>         {enabled, generation, resetAt, sessionId?, updatedAt?, runs}
                               <agent> turn    {turn, generation, windowFrom, summary?}

`sessionId` names the state that the next turn resumes, as `<session>:<entry>`. It is absent before the first
turn since the last reset. A reset removes it and begins a new *generation*. A turn notes the generation in
which it begins. If a reset came while it ran, its end changes nothing here: the reset wins.

The toggle is in the agent's configuration. Turning it on is a reset, in the batch that writes the agent.
Turning it off leaves everything in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from harness.agents.record import AgentRecord
from workspaces.clock import Clock
from workspaces.conditions import ABSENT, ANY
from workspaces.ids import AccountId, AgentId
from workspaces.storage.contention import until_written
from workspaces.storage.records import (
    Condition,
    Delete,
    JsonObject,
    Key,
    Put,
    RecordChange,
    RecordStore,
)
from workspaces.timestamp import Stamp, moment_of, stamp_of

RUNS_BEFORE_WARNING = 20
"""Succeeded runs since the last reset up to which there is no warning. Each makes the session longer."""

MemoryStatus = Literal["Fresh", "Carrying context"]


@dataclass(frozen=True, slots=True)
class MemoryState:
    """The stored state of one agent's active memory."""

    is_enabled: bool = False
    generation: int = 0
    reset_at: Stamp | None = None
    session_id: str | None = None
    updated_at: Stamp | None = None
    runs: int = 0
    """Succeeded runs since the last reset."""
    counter: Condition = field(default=ABSENT, compare=False)

    @property
    def status(self) -> MemoryStatus:
        return "Fresh" if self.session_id is None else "Carrying context"

    def as_reset(self, at: Stamp, *, is_enabled: bool) -> MemoryState:
        """Return the state after a reset."""
        fresh = MemoryState(is_enabled, self.generation + 1, at)
        return replace(fresh, counter=self.counter)

    def stored(self) -> JsonObject:
        """Return the JSON of the record, without empty fields."""
        return {
            "enabled": self.is_enabled,
            "generation": self.generation,
            **({"resetAt": self.reset_at} if self.reset_at else {}),
            **({"sessionId": self.session_id} if self.session_id else {}),
            **({"updatedAt": self.updated_at} if self.updated_at else {}),
            "runs": self.runs,
        }


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The active memory of an agent, as people and programs see it."""

    is_enabled: bool
    session_id: str | None
    updated_at: Stamp | None
    runs: int
    status: MemoryStatus
    age: str | None
    """How long ago the session was last updated, as in `2h 15m`."""
    warning: str | None
    """The suggestion to reset, when the session has grown long."""

    def as_json(self) -> JsonObject:
        return {"sessionId": self.session_id, **self.summary_json()}

    def summary_json(self) -> JsonObject:
        return {
            "enabled": self.is_enabled,
            "hasSession": self.session_id is not None,
            "sessionUpdatedAt": self.updated_at,
            "runsSinceReset": self.runs,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """What was noted at the beginning of a turn in the shared conversation."""

    turn_id: str
    generation: int
    window_from: int
    summary: int | None

    def as_json(self) -> JsonObject:
        return {
            "turn": self.turn_id,
            "generation": self.generation,
            "windowFrom": self.window_from,
            "summary": self.summary,
        }


@dataclass(frozen=True, slots=True)
class ActiveMemories:
    """The active memory of all agents of an account. Threads may share it."""

    account_id: AccountId
    records: RecordStore
    clock: Clock

    def view(self, agent: AgentRecord) -> MemoryView:
        """Return the state of an agent's active memory."""
        state, runs = self.state(agent.id), 0
        runs = state.runs
        updated = state.updated_at
        is_long = agent.config.active_memory and runs > RUNS_BEFORE_WARNING
        return MemoryView(
            is_enabled=agent.config.active_memory,
            session_id=state.session_id,
            updated_at=updated,
            runs=runs,
            status=state.status,
            age=None if updated is None else age_text(moment_of(updated), self.clock.now()),
            warning=long_session_warning(runs) if is_long else None,
        )

    @until_written("active memory")
    def reset(self, agent: AgentRecord) -> MemoryView:
        """Start afresh: the next turn sees nothing of the session. Everything said stays visible in chat."""
        state = self.state(agent.id)
        now = stamp_of(self.clock.now())
        fresh = state.as_reset(now, is_enabled=agent.config.active_memory)
        self.records.write(self.put(agent.id, fresh))
        return self.view(agent)

    def toggled(self, agent: AgentRecord, before: AgentRecord | None) -> Sequence[RecordChange]:
        """Return the changes to write with an agent's record. Turning active memory on is a reset."""
        is_on, was_on = (
            agent.config.active_memory,
            before is not None and before.config.active_memory,
        )
        if is_on == was_on:
            return ()
        state = self.state(agent.id)
        if not is_on:
            return (self.put(agent.id, replace(state, is_enabled=False)),)
        fresh = state.as_reset(stamp_of(self.clock.now()), is_enabled=True)
        return (self.put(agent.id, fresh),)

    def state(self, agent_id: AgentId) -> MemoryState:
        item = self.records.get(self._key(agent_id))
        if item is None:
            return MemoryState()
        value = item.value
        return MemoryState(
            is_enabled=value["enabled"],
            generation=value["generation"],
            reset_at=value.get("resetAt"),
            session_id=value.get("sessionId"),
            updated_at=value.get("updatedAt"),
            runs=value["runs"],
            counter=item.counter,
        )

    def put(self, agent_id: AgentId, state: MemoryState) -> Put:
        return Put(self._key(agent_id), state.stored(), state.counter)

    def begun(self, agent_id: AgentId) -> BegunTurn | None:
        """Return the note of the newest turn in the shared conversation."""
        item = self.records.get(self._turn_key(agent_id))
        if item is None:
            return None
        value = item.value
        turn_id, generation = value["turn"], value["generation"]
        return BegunTurn(turn_id, generation, value["windowFrom"], value["summary"])

    def note(self, agent_id: AgentId, turn: BegunTurn) -> Put:
        """Return the change that notes the beginning of a turn."""
        return Put(self._turn_key(agent_id), turn.as_json(), ANY)

    def delete(self, agent_id: AgentId) -> None:
        """Delete the state of an agent that is being deleted."""
        self.records.write(Delete(self._key(agent_id)), Delete(self._turn_key(agent_id)))

    def _key(self, agent_id: AgentId) -> Key:
        return Key(f"active-memory:{self.account_id}", agent_id)

    def _turn_key(self, agent_id: AgentId) -> Key:
        return Key(f"active-memory:{self.account_id}", f"{agent_id} turn")


def session_state(session_id: str, entry: int) -> str:
    """Return the name of a session's state after this entry."""
    return f"{session_id}:{entry}"


def session_of_state(state: str) -> str:
    """Return the session that a state belongs to."""
    return state.partition(":")[0]


def age_text(since: datetime, now: datetime) -> str:
    """Return the time since a moment: `just now`, `5m`, `2h 15m` or `3d 4h`."""
    minutes = int(max(now - since, timedelta()).total_seconds() // 60)
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 24:
        return f"{hours}h {minutes % 60}m"
    return f"{hours // 24}d {hours % 24}h"


def long_session_warning(runs: int) -> str:
    return f"{runs} runs since the last reset: reset the memory to keep runs fast"
