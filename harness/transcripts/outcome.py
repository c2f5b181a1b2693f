"""What came of an event. It is a function of the entries that its turn left in the transcript, so that
nothing of it is kept twice: with the claim stands only how the turn ended and which entries are its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.context.receipt import Remark, remark_of
from harness.messages.model_request import NO_USAGE, ModelFailure, Usage
from harness.messages.pending_call import PendingCall
from harness.tools.tool_context import ToolRevision
from harness.transcripts.approval import pending
from harness.transcripts.transcript import Entry
from workspaces.durability import HERE, Durable
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.records import JsonObject

Status = Literal[
    "done",
    "waiting",  # for somebody who allows its calls, or for the client who makes them: it is not over
    "cut",  # the answer is cut at the limit of output tokens
    "out_of_steps",
    "out_of_time",
    "out_of_money",  # of the turn's own; an account that has none left is a failure
    "interrupted",  # somebody ended it
    "failed",
]


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
    left_out: tuple[str, ...] = ()
    """Mounts whose workspace or sandbox was deleted."""
    durable: Durable = HERE
    """Where what it changed is safe."""
    remarks: tuple[Remark, ...] = ()

    def as_json(self) -> JsonObject:
        """Only what there is to say."""
        return {
            "status": self.status,
            "turn": self.turn_id,
            "first": self.first,
            "last": self.last,
            **({"error": _error(self.failure)} if self.failure else {}),
            **({"unavailable": list(self.unavailable)} if self.unavailable else {}),
            **({"leftOut": list(self.left_out)} if self.left_out else {}),
            **({"shared": True} if self.durable.files else {}),
            **({"history": True} if self.durable.history else {}),
            **_remarks_json(self.remarks),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    status: Status
    reply: str
    conversation_id: ConversationId
    turn_id: TurnId
    usage: Usage = NO_USAGE
    changes: tuple[ToolRevision, ...] = ()
    failure: ModelFailure | None = None
    unavailable: tuple[str, ...] = ()
    """Sources of memory that could not be read, so that the model went without."""
    left_out: tuple[str, ...] = ()
    """Mounts whose workspace or sandbox was deleted."""
    durable: Durable = HERE
    """Where what it changed is safe."""
    pending: tuple[PendingCall, ...] = ()
    """The calls that it waits for."""
    remarks: tuple[Remark, ...] = ()

    def as_json(self) -> JsonObject:
        return {
            "outcome": self.status,
            "reply": self.reply,
            "conversation": self.conversation_id,
            "turn": self.turn_id,
            "usage": self.usage.as_json(),
            "revisions": [change.as_json() for change in self.changes],
            "durable": self.durable.as_json(),
            **({"pending": [call.as_json() for call in self.pending]} if self.pending else {}),
            **({"error": _error(self.failure)} if self.failure else {}),
            **({"unavailable": list(self.unavailable)} if self.unavailable else {}),
            **({"leftOut": list(self.left_out)} if self.left_out else {}),
            **_remarks_json(self.remarks),
        }


def ending_of(data: JsonObject) -> Ending:
    error = data.get("error")
    failure = ModelFailure(error["code"], error["message"], error["remedy"]) if error else None
    return Ending(
        data["status"],
        TurnId(data["turn"]),
        data["first"],
        data["last"],
        failure,
        tuple(data.get("unavailable", ())),
        tuple(data.get("leftOut", ())),
        Durable(data.get("shared", False), data.get("history", False)),
        tuple(map(remark_of, data.get("context", ()))),
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
        ending.left_out,
        ending.durable,
        pending(own) if ending.status == "waiting" else (),
        ending.remarks,
    )


def _remarks_json(remarks: Sequence[Remark]) -> JsonObject:
    return {"context": [one.as_json() for one in remarks]} if remarks else {}


def _error(failure: ModelFailure) -> JsonObject:
    return {"code": failure.kind, "message": failure.reason, "remedy": failure.remedy}
