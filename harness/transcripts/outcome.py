"""Describe the outcome of an event.

The outcome is a function of the entries that the turn left in the transcript, so that nothing is stored
twice. The claim holds only how the turn ended and which entries are its own.
"""

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
    "waiting",  # for approval of its calls, or for the client that runs them: the turn is not over
    "cut",  # the provider cut the answer at the limit of output tokens
    "out_of_steps",
    "out_of_time",
    "out_of_money",  # the turn's own limit; an account without money is "failed"
    "interrupted",  # a caller cancelled it
    "failed",
]


@dataclass(frozen=True, slots=True)
class Ending:
    """The way a turn ended. `first` and `last` are the numbers of its first and last entries."""

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
    """Where the turn's changes are safe."""
    remarks: tuple[Remark, ...] = ()

    def as_json(self) -> JsonObject:
        """Return the JSON without empty fields."""
        return {
            "status": self.status,
            "turn": self.turn_id,
            "first": self.first,
            "last": self.last,
            **({"error": _error(self.failure)} if self.failure else {}),
            **({"unavailable": list(self.unavailable)} if self.unavailable else {}),
            **({"leftOut": list(self.left_out)} if self.left_out else {}),
            **({"shared": True} if self.durable.files == "s3" else {}),
            **({"history": True} if self.durable.history == "s3" else {}),
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
    """Sources of memory that could not be read, so that the model did not see them."""
    left_out: tuple[str, ...] = ()
    """Mounts whose workspace or sandbox was deleted."""
    durable: Durable = HERE
    """Where the turn's changes are safe."""
    pending: tuple[PendingCall, ...] = ()
    """The calls that the turn waits for."""
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
        status=data["status"],
        turn_id=TurnId(data["turn"]),
        first=data["first"],
        last=data["last"],
        failure=failure,
        unavailable=tuple(data.get("unavailable", ())),
        left_out=tuple(data.get("leftOut", ())),
        durable=Durable.of(files=data.get("shared", False), history=data.get("history", False)),
        remarks=tuple(map(remark_of, data.get("context", ()))),
    )


def outcome_of(ending: Ending, conversation_id: ConversationId, own: Sequence[Entry]) -> Outcome:
    """Return the outcome of a turn with this ending; `own` are the turn's entries."""
    has_answer = ending.status in {"done", "cut"} and len(own) > 0
    return Outcome(
        status=ending.status,
        reply=own[-1].message.text if has_answer else "",
        conversation_id=conversation_id,
        turn_id=ending.turn_id,
        usage=sum((entry.usage for entry in own), start=NO_USAGE),
        changes=tuple(change for entry in own for change in entry.changes),
        failure=ending.failure,
        unavailable=ending.unavailable,
        left_out=ending.left_out,
        durable=ending.durable,
        pending=pending(own) if ending.status == "waiting" else (),
        remarks=ending.remarks,
    )


def _remarks_json(remarks: Sequence[Remark]) -> JsonObject:
    return {"context": [one.as_json() for one in remarks]} if remarks else {}


def _error(failure: ModelFailure) -> JsonObject:
    return {"code": failure.kind, "message": failure.reason, "remedy": failure.remedy}
