"""Sessions: stretches of a conversation. A reset starts a new one; what came before stays visible to
people and leaves the context. So does what a compaction has summarised."""

from __future__ import annotations

from dataclasses import dataclass, field

from workspaces.conditions import ABSENT
from workspaces.ids import SessionId, new_id
from workspaces.storage.records import Condition, Item, JsonObject
from workspaces.timestamp import Stamp


@dataclass(frozen=True, slots=True)
class Session:
    id: SessionId
    first: int
    """The number of its first entry, which may not have come yet."""
    started_at: Stamp
    window_from: int
    """The first entry that is still in the context: what lies before is covered by a summary."""
    summary: int | None = None
    """The number of the entry that is this summary."""
    failed_at: int = 0
    """How long the context was, in characters, when a summary failed that none has followed."""
    counter: Condition = field(default=ABSENT, compare=False)
    """Of its record; ABSENT: it is not kept yet."""

    def as_json(self) -> JsonObject:
        """Only what there is to say."""
        return {
            "id": self.id,
            "startedAt": self.started_at,
            **({"windowFrom": self.window_from} if self.window_from != self.first else {}),
            **({"summary": self.summary} if self.summary is not None else {}),
            **({"failedAt": self.failed_at} if self.failed_at else {}),
        }


def new_session(first: int, started_at: Stamp) -> Session:
    return Session(SessionId(new_id("ses")), first, started_at, first)


def session_of(item: Item) -> Session:
    first = int(item.key.sort)
    value = item.value
    return Session(
        SessionId(value["id"]),
        first,
        Stamp(value["startedAt"]),
        value.get("windowFrom", first),
        value.get("summary"),
        value.get("failedAt", 0),
        item.counter,
    )
