"""What came of an event. It is a function of the entries that its turn left in the transcript, so that
nothing of it is kept twice: with the claim stands only how the turn ended and which entries are its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.request import NO_USAGE, ModelFailure, Usage
from harness.tools.desk import Change
from harness.transcript import Entry
from workspaces.ids import ConversationId, TurnId
from workspaces.records import JsonObject

Status = Literal["done", "failed", "out_of_steps", "cut"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended. `first` and `last` number its entries."""

    status: Status
    turn_id: TurnId
    first: int
    last: int
    failure: ModelFailure | None = None
    unavailable: tuple[str, ...] = ()
    """Sources of memory that could not be read."""

    def as_json(self) -> JsonObject:
        error = {"error": _error(self.failure)} if self.failure else {}
        missed = {"unavailable": list(self.unavailable)} if self.unavailable else {}
        numbers = {"first": self.first, "last": self.last}
        return {"status": self.status, "turn": self.turn_id, **numbers, **error, **missed}


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    reply: str
    conversation_id: ConversationId
    turn_id: TurnId
    usage: Usage = NO_USAGE
    changes: tuple[Change, ...] = ()
    failure: ModelFailure | None = None
    unavailable: tuple[str, ...] = ()
    """Sources of memory that could not be read, so that the model went without."""

    def as_json(self) -> JsonObject:
        return {
            "outcome": self.status,
            "reply": self.reply,
            "conversation": self.conversation_id,
            "turn": self.turn_id,
            "usage": self.usage.as_json(),
            "revisions": [change.as_json() for change in self.changes],
            "durable": {"local": True, "files": False, "history": False},
            **({"error": _error(self.failure)} if self.failure else {}),
            **({"unavailable": list(self.unavailable)} if self.unavailable else {}),
        }


def ending_of(data: JsonObject) -> Ending:
    error = data.get("error")
    failure = ModelFailure(error["code"], error["message"], error["remedy"]) if error else None
    missed = tuple(data.get("unavailable", ()))
    return Ending(
        data["status"], TurnId(data["turn"]), data["first"], data["last"], failure, missed
    )


def outcome_of(ending: Ending, conversation_id: ConversationId, own: Sequence[Entry]) -> Outcome:
    """`own` are the entries of the turn."""
    has_answer = ending.status in {"done", "cut"} and len(own) > 0
    return Outcome(
        ending.status,
        own[-1].message.text if has_answer else "",
        conversation_id,
        ending.turn_id,
        sum((entry.usage for entry in own), start=NO_USAGE),
        tuple(change for entry in own for change in entry.changes),
        ending.failure,
        ending.unavailable,
    )


def _error(failure: ModelFailure) -> JsonObject:
    return {"code": failure.kind, "message": failure.reason, "remedy": failure.remedy}
