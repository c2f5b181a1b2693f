"""Snapshots: the prompt of a session and its tools as they were when it was taken, kept with their bytes.

From then on it is repeated byte for byte, so that the provider's prompt cache holds; what changes in
memory meanwhile is told by deltas beside the newest message. `decide` says before each request which of
the three is due: nothing, a delta, or another snapshot. With a snapshot goes whatever else makes a provider
read everything anew: what tools did long ago is left out from then on. The reasons for another one:

    reset, compacted      what was said before has left the context, and with it the deltas beside it
    mounts, policy, gate, configuration
                          what may be shown has changed: what may not must not stand there any longer
    erased                a revision that was shown is no longer part of the history
    available_again       memory that could not be read was missing from the snapshot, or is told anew
    deltas                together they exceed a quarter of the snapshot
    traffic               so much of what tools did long ago may leave the messages that reading the prompt
                          anew is worth it
    expired               the cache has forgotten it, so that a new one costs nothing more
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any, Literal

from harness.context.delta import Delta, Seams, delta, with_deltas
from harness.context.length import Length
from harness.context.part import PromptPart, Render, part_of
from harness.messages.model_request import ToolSpec, tool_spec_of
from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, stamp_of
from workspaces.tree.merge_marks import MergeMark

CACHE_LIFETIME = timedelta(hours=1)
"""The longest that a provider keeps what it was sent."""

DELTAS_SHARE_MAX = 0.25
"""Of the snapshot's characters: more than that, and reading the differences is work."""

STEP_CHARACTERS_MIN = 40_000
"""Of what tools did long ago: less is not worth a snapshot of its own."""

Reason = Literal[
    "first",
    "reset",
    "compacted",
    "mounts",
    "policy",
    "gate",
    "configuration",
    "erased",
    "available_again",
    "deltas",
    "traffic",
    "expired",
]


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """What a snapshot was taken under. Each is opaque: it is compared and nothing else; the first that
    differs is the reason for another snapshot."""

    reset: str
    """The session."""
    compacted: str
    """Where its window begins."""
    mounts: str
    policy: str
    gate: str
    """The views under which memory is read."""
    configuration: str
    """Model, tools, instructions, guidance, budget."""

    def as_json(self) -> JsonObject:
        return {
            "reset": self.reset,
            "compacted": self.compacted,
            "mounts": self.mounts,
            "policy": self.policy,
            "gate": self.gate,
            "configuration": self.configuration,
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    number: int
    """Within the conversation, from 1."""
    at: Stamp
    reason: Reason
    terms: SnapshotKey
    parts: tuple[PromptPart, ...]
    tools: tuple[ToolSpec, ...]
    day: date
    traffic_from: int = 0
    """The number of the entry from which on the messages beside it show calls and results."""

    @property
    def characters(self) -> int:
        return sum(len(part.text) for part in self.parts)

    def as_json(self) -> JsonObject:
        return {
            "at": self.at,
            "reason": self.reason,
            "terms": self.terms.as_json(),
            "parts": [part.as_json() for part in self.parts],
            "tools": [tool.as_json() for tool in self.tools],
            "day": self.day.isoformat(),
            **({"trafficFrom": self.traffic_from} if self.traffic_from else {}),
        }


@dataclass(frozen=True, slots=True)
class ShownState:
    """What a conversation has been shown so far."""

    snapshot: Snapshot
    deltas: tuple[Delta, ...]
    asked_at: datetime
    """When the newest request was made."""
    length: Length | None = None
    """How long that was."""
    entry: int = 0
    """The number of the newest message in it."""

    @property
    def day(self) -> date:
        """The one that the model takes for today."""
        days = [delta.day for delta in self.deltas if delta.day is not None]
        return days[-1] if days else self.snapshot.day

    @property
    def parts(self) -> tuple[PromptPart, ...]:
        """What the model has before its eyes."""
        return with_deltas(self.snapshot.parts, self.deltas)

    def revisions(self) -> dict[str, RevisionId]:
        """Of each memory the one that the model was shown last."""
        return {part.source: part.revision for part in self.parts if part.revision is not None}


@dataclass(frozen=True, slots=True)
class Leaving:
    """What of the messages a snapshot taken now would show no longer: calls and results of turns that
    ended long ago."""

    traffic_from: int
    """The number of the entry from which on they stay."""
    characters: int


NOTHING_LEAVES = Leaving(0, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """How things are at a request."""

    at: datetime
    entry: int
    """The number of the newest message."""
    terms: SnapshotKey
    parts: tuple[PromptPart, ...]
    """What a snapshot taken now would hold."""
    tools: tuple[ToolSpec, ...] = ()
    is_erased: bool = False
    """A revision that was shown is gone from its history."""
    seams: Seams = field(default_factory=dict[str, Sequence[MergeMark]], hash=False)
    leaving: Leaving = NOTHING_LEAVES

    @property
    def day(self) -> date:
        return self.at.date()


def decide(held: ShownState | None, now: Moment, render: Render) -> Snapshot | Delta | None:
    """What must be shown anew; None when what is shown still holds."""
    if held is None:
        return _snapshot(1, "first", now)
    reason = _overdue(held, now)
    if reason is not None:
        return _snapshot(held.snapshot.number + 1, reason, now)
    day = now.day if now.day != held.day else None
    news = delta(now.entry, held.parts, now.parts, day, render, now.seams)
    if news is None:
        return None
    told = sum(len(one.text) for one in (*held.deltas, news))
    if told > held.snapshot.characters * DELTAS_SHARE_MAX:
        return _snapshot(held.snapshot.number + 1, "deltas", now)
    return news


def after(held: ShownState | None, news: Snapshot | Delta | None, at: datetime) -> ShownState:
    """What has been shown once this is shown too."""
    if isinstance(news, Snapshot):
        return ShownState(news, (), at)
    if held is None:
        raise ValueError("what is shown first is a snapshot")
    return ShownState(held.snapshot, (*held.deltas, news) if news else held.deltas, at)


def snapshot_of(number: int, data: JsonObject) -> Snapshot:
    return Snapshot(
        number,
        Stamp(data["at"]),
        data["reason"],
        terms_of(data["terms"]),
        tuple(part_of(one) for one in data["parts"]),
        tuple(tool_spec_of(one) for one in data["tools"]),
        date.fromisoformat(data["day"]),
        data.get("trafficFrom", 0),
    )


def terms_of(data: Mapping[str, Any]) -> SnapshotKey:
    """Of an older form too: what it did not know yet differs from everything."""
    return SnapshotKey(**{field.name: data.get(field.name, "") for field in fields(SnapshotKey)})


def _overdue(held: ShownState, now: Moment) -> Reason | None:
    before, after = held.snapshot.terms, now.terms
    if before.reset != after.reset:
        return "reset"
    if before.compacted != after.compacted:
        return "compacted"
    if before.mounts != after.mounts:
        return "mounts"
    if before.policy != after.policy:
        return "policy"
    if before.gate != after.gate:
        return "gate"
    if before.configuration != after.configuration:
        return "configuration"
    if now.is_erased:
        return "erased"
    if _is_available_again(held, now):
        return "available_again"
    if now.leaving.characters >= STEP_CHARACTERS_MIN:
        return "traffic"
    return "expired" if now.at - held.asked_at > CACHE_LIFETIME else None


def _is_available_again(held: ShownState, now: Moment) -> bool:
    missed = {part.source for part in held.parts if part.unavailable}
    return bool(missed) and not missed <= {part.source for part in now.parts if part.unavailable}


def _snapshot(number: int, reason: Reason, now: Moment) -> Snapshot:
    at, since = stamp_of(now.at), now.leaving.traffic_from
    return Snapshot(number, at, reason, now.terms, now.parts, now.tools, now.day, since)
