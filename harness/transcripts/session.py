"""Describe sessions: the stretches of a conversation.

A reset starts a new session. Earlier entries stay visible to people but leave the context. So do entries that
a compaction has summarised.
"""

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
    """Number of the session's first entry, which may not exist yet."""
    started_at: Stamp
    window_from: int
    """The first entry that is still in the context. A summary covers the entries before it."""
    summary: int | None = None
    """Number of the entry that is this summary."""
    failed_at: int = 0
    """Length of the context in characters at the last failed summary; 0 after a successful one."""
    counter: Condition = field(default=ABSENT, compare=False)
    """Counter of the session's record; ABSENT if it is not stored yet."""

    def as_json(self) -> JsonObject:
        """Return the JSON without empty fields."""
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
        id=SessionId(value["id"]),
        first=first,
        started_at=Stamp(value["startedAt"]),
        window_from=value.get("windowFrom", first),
        summary=value.get("summary"),
        failed_at=value.get("failedAt", 0),
        counter=item.counter,
    )
