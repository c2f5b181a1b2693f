"""Describe the status of an event, for callers that did not wait for its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.transcripts.outcome import Outcome
from workspaces.errors import Failure
from workspaces.ids import ConversationId, TurnId
from workspaces.storage.records import JsonObject

EventState = Literal["queued", "running", "waiting", "done", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class EventStatus:
    """The status of an event, for callers that did not wait for its outcome."""

    event_id: str
    state: EventState
    conversation_id: ConversationId
    number: int
    """The event's place in the conversation's queue."""
    ahead: int = 0
    """Number of events before it, while it is queued."""
    turn_id: TurnId | None = None
    first: int | None = None
    """Number of its turn's first entry."""
    outcome: Outcome | None = None
    refusal: JsonObject | None = None
    """Why the event was given back before anything happened; it may be sent again."""

    @property
    def is_at_rest(self) -> bool:
        """True if nothing more happens to the event by itself."""
        return self.state not in {"queued", "running"}

    def as_json(self) -> JsonObject:
        """Return the JSON without empty fields."""
        outcome = self.outcome.as_json() if self.outcome else {}
        known = {"conversation", "turn"}
        return {
            "eventId": self.event_id,
            "status": self.state,
            "conversationId": self.conversation_id,
            **({"turnId": self.turn_id} if self.turn_id else {}),
            **({"ahead": self.ahead} if self.ahead else {}),
            **{name: value for name, value in outcome.items() if name not in known},
            **({"error": self.refusal} if self.refusal else {}),
        }


class GivenBack(Failure):
    """An error: the event failed in another process before anything happened. It may be sent again."""

    def __init__(self, refusal: JsonObject) -> None:
        super().__init__(refusal["message"], remedy=refusal["remedy"])
        self.code = refusal["code"]


def state_of(outcome: Outcome) -> EventState:
    match outcome.status:
        case "failed" | "waiting":
            return outcome.status
        case _:
            return "done"
