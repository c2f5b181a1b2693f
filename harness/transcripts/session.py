"""Describe sessions: the stretches of a conversation.

A reset starts a new session. Earlier entries stay visible to people but leave the context. So do entries that
a compaction has summarised, and entries that a failed run left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workspaces.conditions import ABSENT
from workspaces.ids import SessionId, new_id
from workspaces.storage.records import Condition, Item, JsonObject
from workspaces.timestamp import Stamp

EntryRange = tuple[int, int]
"""The numbers of the first and the last entry of a range."""


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
    skipped: tuple[EntryRange, ...] = ()
    """Entries of failed runs. They stay visible to people, and the context leaves them out."""
    counter: Condition = field(default=ABSENT, compare=False)
    """Counter of the session's record; ABSENT if it is not stored yet."""

    def skips(self, number: int) -> bool:
        """Return True if the context leaves this entry out."""
        return any(first <= number <= last for first, last in self.skipped)

    @property
    def window_key(self) -> str:
        """A text that changes whenever other entries are left out of the context."""
        skipped = (f"-{first}:{last}" for first, last in self.skipped)
        return "".join([str(self.window_from), *skipped])

    def as_json(self) -> JsonObject:
        """Return the JSON without empty fields."""
        return {
            "id": self.id,
            "startedAt": self.started_at,
            **({"windowFrom": self.window_from} if self.window_from != self.first else {}),
            **({"summary": self.summary} if self.summary is not None else {}),
            **({"failedAt": self.failed_at} if self.failed_at else {}),
            **({"skipped": [list(one) for one in self.skipped]} if self.skipped else {}),
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
        skipped=tuple((first, last) for first, last in value.get("skipped", ())),
        counter=item.counter,
    )
