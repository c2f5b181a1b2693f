"""Snapshots: the stored bytes of a session's prompt and tools.

A snapshot is repeated byte for byte, so that the provider's prompt cache stays valid. Later changes in memory
are told by deltas beside the newest message. Before each request `decide` chooses one of three: nothing, a
delta, or another snapshot. Everything else that makes the provider read the prompt anew happens together with
a snapshot: from then on calls and results of old turns are left out. The reasons for a new snapshot:

    reset, compacted      the earlier messages have left the context, and with them the deltas beside them
    mounts, policy, gate, configuration
                          the memory that may be shown has changed: forbidden text must not stay there
    erased                a revision that was shown is no longer part of the history
    available_again       memory that could not be read is missing from the snapshot, or is shown again
    deltas                together they exceed a quarter of the snapshot
    traffic               so many calls and results of old turns may be left out that it is worth letting
                          the provider read the prompt anew
    expired               the provider's cache has expired, so that a new snapshot costs nothing extra
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any, Literal

from harness.context.delta import Delta, MergesBySource, delta, with_deltas
from harness.context.length import Length
from harness.context.part import PromptPart, Render, part_of
from harness.messages.model_request import ToolSpec, tool_spec_of
from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp, stamp_of
from workspaces.tree.merge_marks import MergeMark

CACHE_LIFETIME = timedelta(hours=1)
"""The longest time that a provider caches a prompt."""

DELTAS_SHARE_MAX = 0.25
"""The deltas' share of the snapshot's characters. With more, reading the differences is work."""

STEP_CHARACTERS_MIN = 40_000
"""Characters of old calls and results. Fewer are not worth a snapshot of their own."""

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
    """The conditions under which a snapshot was taken.

    Each value is opaque and only compared. The first one that differs is the reason for another snapshot.
    """

    reset: str
    """The session."""
    compacted: str
    """The beginning of the conversation's window."""
    mounts: str
    policy: str
    gate: str
    """The views under which memory is read."""
    configuration: str
    """The model, tools, instructions, guidance and budget."""

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
    """The number within the conversation, from 1."""
    at: Stamp
    reason: Reason
    terms: SnapshotKey
    parts: tuple[PromptPart, ...]
    tools: tuple[ToolSpec, ...]
    day: date
    traffic_from: int = 0
    """The number of the first entry whose calls and results the messages show."""

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
    """The prompt as a conversation has seen it so far."""

    snapshot: Snapshot
    deltas: tuple[Delta, ...]
    asked_at: datetime
    """The time of the newest request."""
    length: Length | None = None
    """The length of the newest request."""
    entry: int = 0
    """The number of the newest message in that request."""

    @property
    def day(self) -> date:
        """Return the date that the model takes for today."""
        days = [delta.day for delta in self.deltas if delta.day is not None]
        return days[-1] if days else self.snapshot.day

    @property
    def parts(self) -> tuple[PromptPart, ...]:
        """Return the parts as the model sees them."""
        return with_deltas(self.snapshot.parts, self.deltas)

    def revisions(self) -> dict[str, RevisionId]:
        """Return, for each memory, the revision that the model saw last."""
        return {part.source: part.revision for part in self.parts if part.revision is not None}


@dataclass(frozen=True, slots=True)
class Leaving:
    """The calls and results that a snapshot taken now would leave out. They belong to turns that ended long
    ago."""

    traffic_from: int
    """The number of the first entry whose calls and results stay."""
    characters: int


NOTHING_LEAVES = Leaving(0, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """The facts at the time of a request."""

    at: datetime
    entry: int
    """The number of the newest message."""
    terms: SnapshotKey
    parts: tuple[PromptPart, ...]
    """The parts that a snapshot taken now would hold."""
    tools: tuple[ToolSpec, ...] = ()
    is_erased: bool = False
    """True if a revision that was shown is gone from its history."""
    merges: MergesBySource = field(default_factory=dict[str, Sequence[MergeMark]], hash=False)
    leaving: Leaving = NOTHING_LEAVES

    @property
    def day(self) -> date:
        return self.at.date()


def decide(shown: ShownState | None, now: Moment, render: Render) -> Snapshot | Delta | None:
    """Return the snapshot or delta that the next request needs, or None if the shown state still holds."""
    if shown is None:
        return _snapshot(1, "first", now)
    reason = _overdue(shown, now)
    if reason is not None:
        return _snapshot(shown.snapshot.number + 1, reason, now)
    day = now.day if now.day != shown.day else None
    change = delta(now.entry, shown.parts, now.parts, day, render, now.merges)
    if change is None:
        return None
    characters = sum(len(one.text) for one in (*shown.deltas, change))
    if characters > shown.snapshot.characters * DELTAS_SHARE_MAX:
        return _snapshot(shown.snapshot.number + 1, "deltas", now)
    return change


def after(shown: ShownState | None, change: Snapshot | Delta | None, at: datetime) -> ShownState:
    """Return the state after this snapshot or delta is shown, too."""
    if isinstance(change, Snapshot):
        return ShownState(change, (), at)
    if shown is None:
        raise ValueError("a conversation must begin with a snapshot")
    return ShownState(shown.snapshot, (*shown.deltas, change) if change else shown.deltas, at)


def snapshot_of(number: int, data: JsonObject) -> Snapshot:
    return Snapshot(
        number=number,
        at=Stamp(data["at"]),
        reason=data["reason"],
        terms=terms_of(data["terms"]),
        parts=tuple(part_of(one) for one in data["parts"]),
        tools=tuple(tool_spec_of(one) for one in data["tools"]),
        day=date.fromisoformat(data["day"]),
        traffic_from=data.get("trafficFrom", 0),
    )


def terms_of(data: Mapping[str, Any]) -> SnapshotKey:
    """Return the key from JSON. A field that an older record lacks differs from every value."""
    return SnapshotKey(**{field.name: data.get(field.name, "") for field in fields(SnapshotKey)})


def _overdue(shown: ShownState, now: Moment) -> Reason | None:
    before, after = shown.snapshot.terms, now.terms
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
    if _is_available_again(shown, now):
        return "available_again"
    if now.leaving.characters >= STEP_CHARACTERS_MIN:
        return "traffic"
    return "expired" if now.at - shown.asked_at > CACHE_LIFETIME else None


def _is_available_again(shown: ShownState, now: Moment) -> bool:
    unavailable = {part.source for part in shown.parts if part.unavailable}
    return bool(unavailable) and not unavailable <= {
        part.source for part in now.parts if part.unavailable
    }


def _snapshot(number: int, reason: Reason, now: Moment) -> Snapshot:
    at, since = stamp_of(now.at), now.leaving.traffic_from
    return Snapshot(
        number=number,
        at=at,
        reason=reason,
        terms=now.terms,
        parts=now.parts,
        tools=now.tools,
        day=now.day,
        traffic_from=since,
    )
