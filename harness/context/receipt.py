"""Receipts: what exactly one step was shown, so that it can be said afterwards.

A receipt names the parts, each with the revision it was read from; the bytes themselves lie with the
snapshot, with the deltas and in the transcript, which none of them changes. The digest proves that what
is put together from there later is what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal

from harness.context.delta import Delta, PartChange
from harness.context.history_message import HistoryMessage
from harness.context.length import Length, length_of
from harness.context.part import PromptPart
from harness.context.prune import Pruning, pruning_of
from harness.context.snapshot import ShownState, Snapshot
from harness.messages.model_request import ModelRequest
from workspaces.ids import TurnId
from workspaces.revision import RevisionId
from workspaces.storage.records import JsonObject
from workspaces.timestamp import Stamp

BEGINNINGS_KEPT = 64
"""Of requests: conversations with an agent begin with the same few thousand characters."""

_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))

PLATFORM = "platform"
"""The source of what the platform says beside the snapshot."""


RequestPurpose = Literal[
    "turn",
    "flush",  # the same question, and behind it that what must last is to be written down
]


@dataclass(frozen=True, slots=True)
class Remark:
    """A note of a turn on its context or on people's edits, told beside the answer."""

    kind: Literal[
        "compacted",
        "summary_failed",  # nothing was changed
        "system_too_long",  # no summary can help
        "turn_too_long",  # there is nothing to summarise
        "flush_failed",  # what must last may not have been written down
        "pruned_hard",  # for a provider that refused the request as too long
        "unsettled",  # edits by hand that no revision holds yet
    ]
    detail: str

    def as_json(self) -> JsonObject:
        return {"kind": self.kind, "detail": self.detail}


def remark_of(data: JsonObject) -> Remark:
    return Remark(data["kind"], data["detail"])


@dataclass(frozen=True, slots=True)
class ShownPart:
    source: str
    revision: RevisionId | None
    bytes: int
    """As UTF-8."""
    lines_left_out: int = 0
    unavailable: str | None = None
    entry: int | None = None
    """For a change: the message that it stands beside. None: the part itself, in the snapshot."""

    def as_json(self) -> JsonObject:
        return {
            "source": self.source,
            "bytes": self.bytes,
            **({"revision": self.revision} if self.revision else {}),
            **({"linesLeftOut": self.lines_left_out} if self.lines_left_out else {}),
            **({"unavailable": self.unavailable} if self.unavailable else {}),
            **({"entry": self.entry} if self.entry is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    number: int
    """Within the conversation, from 1."""
    at: Stamp
    turn_id: TurnId
    model: str
    snapshot: int
    """The number of the snapshot."""
    deltas: int
    """How many deltas of that snapshot had been told."""
    first: int
    last: int
    """The entries that were shown."""
    pruning: Pruning | None
    """How these were shortened; None: not at all."""
    length: Length | None
    """Of the request; None in receipts from before it was noted."""
    parts: tuple[ShownPart, ...]
    """Those of the snapshot, then their changes in the order in which they were told."""
    digest: str
    """SHA-256 of the request."""
    remarks: tuple[Remark, ...] = ()
    """What its turn had to say about its context up to here."""
    purpose: RequestPurpose = "turn"

    @property
    def unavailable(self) -> frozenset[str]:
        """The sources of memory that could not be read."""
        newest = self.newest.items()
        return frozenset(source for source, part in newest if part.unavailable is not None)

    @property
    def newest(self) -> dict[str, ShownPart]:
        """For each source how it was told last."""
        return {part.source: part for part in self.parts}

    def as_json(self) -> JsonObject:
        return {
            "at": self.at,
            "turn": self.turn_id,
            "model": self.model,
            "snapshot": self.snapshot,
            "deltas": self.deltas,
            "entries": [self.first, self.last],
            **({"pruning": self.pruning.as_json()} if self.pruning else {}),
            **({"length": self.length.as_json()} if self.length else {}),
            "parts": [part.as_json() for part in self.parts],
            "digest": self.digest,
            **({"context": [one.as_json() for one in self.remarks]} if self.remarks else {}),
            **({"purpose": self.purpose} if self.purpose != "turn" else {}),
        }


@dataclass(frozen=True, slots=True)
class Entrance:
    """The first step that was shown a revision of a memory."""

    source: str
    revision: RevisionId
    before: RevisionId | None
    """The one that was shown until then."""
    receipt: Receipt


def receipt(
    number: int,
    at: Stamp,
    turn_id: TurnId,
    model: str,
    held: ShownState,
    said: Sequence[HistoryMessage],
    pruning: Pruning | None,
    request: ModelRequest,
    remarks: tuple[Remark, ...] = (),
    purpose: RequestPurpose = "turn",
) -> Receipt:
    return Receipt(
        number,
        at,
        turn_id,
        model,
        held.snapshot.number,
        len(held.deltas),
        said[0].number,
        said[-1].number,
        pruning,
        held.length,
        (*shown_parts(held.snapshot, held.deltas), *_of_platform(request)),
        digest(request),
        remarks,
        purpose,
    )


def shown_parts(snapshot: Snapshot, deltas: Iterable[Delta]) -> tuple[ShownPart, ...]:
    changed = (_as_told(change, one.entry) for one in deltas for change in one.changes)
    return (*map(_as_taken, snapshot.parts), *changed)


def entrances(receipts: Iterable[Receipt]) -> list[Entrance]:
    """Which revision of which memory entered at which step, in order."""
    shown: dict[str, RevisionId] = {}
    found: list[Entrance] = []
    for one in receipts:
        newest = one.newest
        for source, part in newest.items():
            if part.revision is not None and shown.get(source) != part.revision:
                found.append(Entrance(source, part.revision, shown.get(source), one))
        shown = {
            source: revision
            for source, part in newest.items()
            if (revision := part.revision or (shown.get(source) if part.unavailable else None))
        }
    return found


def digest(request: ModelRequest) -> str:
    """Of the JSON of its `as_json`."""
    messages = _ASCII.encode([message.as_sent() for message in request.messages])
    tools = ",".join(tool.ascii_text for tool in request.tools)
    text = f'{{"system":{_system(request.system)},"messages":{messages},"tools":[{tools}]}}'
    return sha256(text.encode()).hexdigest()


@lru_cache(maxsize=BEGINNINGS_KEPT)
def _system(texts: tuple[str, ...]) -> str:
    return _ASCII.encode(texts)


def receipt_of(number: int, data: JsonObject) -> Receipt:
    first, last = data["entries"]
    return Receipt(
        number,
        Stamp(data["at"]),
        TurnId(data["turn"]),
        data["model"],
        data["snapshot"],
        data["deltas"],
        first,
        last,
        pruning_of(data["pruning"]) if "pruning" in data else None,
        length_of(data["length"]) if "length" in data else None,
        tuple(_part_of(part) for part in data["parts"]),
        data["digest"],
        tuple(map(remark_of, data.get("context", ()))),
        data.get("purpose", "turn"),
    )


def _as_taken(part: PromptPart) -> ShownPart:
    size = len(part.text.encode())
    return ShownPart(part.source, part.revision, size, part.lines_left_out, part.unavailable)


def _as_told(change: PartChange, entry: int) -> ShownPart:
    size, left_out = len(change.text.encode()), change.lines_left_out
    return ShownPart(change.source, change.revision, size, left_out, change.unavailable, entry)


def _of_platform(request: ModelRequest) -> Iterator[ShownPart]:
    """What is said beside the snapshot: only that it was, and how much, for some of it is kept nowhere."""
    for text in request.system[len(request.breakpoints.system) :]:
        yield ShownPart(PLATFORM, None, len(text.encode()))


def _part_of(data: JsonObject) -> ShownPart:
    revision = data.get("revision")
    return ShownPart(
        data["source"],
        RevisionId(revision) if revision else None,
        data["bytes"],
        data.get("linesLeftOut", 0),
        data.get("unavailable"),
        data.get("entry"),
    )
