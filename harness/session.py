"""Sessions: stretches of a conversation. A reset starts a new one; what came before stays visible to
people and leaves the context."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.ids import SessionId, new_id
from workspaces.records import Item, JsonObject
from workspaces.stamp import Stamp


@dataclass(frozen=True, slots=True)
class Session:
    id: SessionId
    first: int
    """The number of its first entry, which may not have come yet."""
    started_at: Stamp
    window_from: int
    """The first entry that is still in the context: what lies before is covered by a summary."""

    def as_json(self) -> JsonObject:
        window = {"windowFrom": self.window_from} if self.window_from != self.first else {}
        return {"id": self.id, "startedAt": self.started_at, **window}


def new_session(first: int, started_at: Stamp) -> Session:
    return Session(SessionId(new_id("ses")), first, started_at, first)


def session_of(item: Item) -> Session:
    first = int(item.key.sort)
    value = item.value
    return Session(
        SessionId(value["id"]), first, Stamp(value["startedAt"]), value.get("windowFrom", first)
    )
