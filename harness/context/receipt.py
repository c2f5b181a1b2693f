"""Receipts: record exactly what the model saw at one step, so that it can be explained later.

A receipt names the parts, each with the revision it was read from. The bytes themselves lie with the
snapshot, with the deltas and in the transcript; these never change. The digest proves that a request rebuilt
from them is the request that was sent.
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

SYSTEM_BLOCKS_CACHED = 64
"""System blocks whose JSON is cached: conversations with an agent begin with the same few thousand
characters."""

_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))

PLATFORM = "platform"
"""The source of the platform's text beside the snapshot."""


RequestPurpose = Literal[
    "turn",
    "flush",  # the same request, followed by the instruction to save lasting facts to memory
]


REDACTED = "redacted: "
"""What stands, before the id of a tombstone, in the place of a hash from which a text could be guessed."""

DECISION = "decision:"
"""The beginning of the source of a decision's slot, which stands in a message."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A note about a turn's context or about manual edits, returned with the answer."""

    kind: Literal[
        "compacted",
        "summary_failed",  # the context is unchanged
        "system_too_long",  # the blocks beside the messages exceed the limit: a summary cannot help
        "turn_too_long",  # nothing precedes the newest turn, so there is nothing to summarise
        "flush_failed",  # lasting facts may not have been saved to memory
        "pruned_hard",  # the provider refused the request as too long
        "unsettled",  # manual edits that are not committed yet
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
    """The size of the text in UTF-8."""
    lines_left_out: int = 0
    unavailable: str | None = None
    entry: int | None = None
    """The number of the message that a change stands beside, or that holds a slot of a decision; None for a
    part of the snapshot."""
    rows: tuple[str, ...] = ()
    """The ids of the facts that the part shows; for a change, after it."""

    def as_json(self) -> JsonObject:
        return {
            "source": self.source,
            "bytes": self.bytes,
            **({"revision": self.revision} if self.revision else {}),
            **({"linesLeftOut": self.lines_left_out} if self.lines_left_out else {}),
            **({"unavailable": self.unavailable} if self.unavailable else {}),
            **({"entry": self.entry} if self.entry is not None else {}),
            **({"rows": list(self.rows)} if self.rows else {}),
        }


@dataclass(frozen=True, slots=True)
class Receipt:
    number: int
    """The number within the conversation, from 1."""
    at: Stamp
    turn_id: TurnId
    model: str
    snapshot: int
    """The number of the snapshot."""
    deltas: int
    """The number of that snapshot's deltas that the request contained."""
    first: int
    last: int
    """The first and the last entry that were shown."""
    pruning: Pruning | None
    """The rule by which these entries were shortened; None if they were not."""
    length: Length | None
    """The length of the request; None in receipts written before it was recorded."""
    parts: tuple[ShownPart, ...]
    """The parts of the snapshot, then their changes in the order in which they were shown."""
    digest: str
    """The SHA-256 of the request. If a text that it showed was forgotten since: `redacted: ` and the id of
    the tombstone, because a short text could be guessed from the hash."""
    remarks: tuple[Remark, ...] = ()
    """The remarks of its turn about the context up to this step."""
    purpose: RequestPurpose = "turn"

    @property
    def unavailable(self) -> frozenset[str]:
        """Return the sources of memory that could not be read."""
        newest = self.newest.items()
        return frozenset(source for source, part in newest if part.unavailable is not None)

    @property
    def is_redacted(self) -> bool:
        """Return True if a text that the request showed was forgotten since."""
        return self.digest.startswith(REDACTED)

    @property
    def newest(self) -> dict[str, ShownPart]:
        """Return, for each source, the part that was shown last."""
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
    """The first step at which the model saw a revision of a memory."""

    source: str
    revision: RevisionId
    before: RevisionId | None
    """The revision that was shown until then."""
    receipt: Receipt


def receipt(
    number: int,
    at: Stamp,
    turn_id: TurnId,
    model: str,
    shown: ShownState,
    history: Sequence[HistoryMessage],
    pruning: Pruning | None,
    request: ModelRequest,
    remarks: tuple[Remark, ...] = (),
    purpose: RequestPurpose = "turn",
    also_shown: tuple[ShownPart, ...] = (),
) -> Receipt:
    return Receipt(
        number=number,
        at=at,
        turn_id=turn_id,
        model=model,
        snapshot=shown.snapshot.number,
        deltas=len(shown.deltas),
        first=history[0].number,
        last=history[-1].number,
        pruning=pruning,
        length=shown.length,
        parts=(*shown_parts(shown.snapshot, shown.deltas), *_platform_parts(request), *also_shown),
        digest=digest(request),
        remarks=remarks,
        purpose=purpose,
    )


def shown_parts(snapshot: Snapshot, deltas: Iterable[Delta]) -> tuple[ShownPart, ...]:
    changed = (_change_part(change, one.entry) for one in deltas for change in one.changes)
    return (*map(_snapshot_part, snapshot.parts), *changed)


def entrances(receipts: Iterable[Receipt]) -> list[Entrance]:
    """Return, in order, at which step each revision of each memory was first shown."""
    shown: dict[str, RevisionId] = {}
    result: list[Entrance] = []
    for one in receipts:
        newest = one.newest
        for source, part in newest.items():
            if part.revision is not None and shown.get(source) != part.revision:
                result.append(Entrance(source, part.revision, shown.get(source), one))
        shown = {
            source: revision
            for source, part in newest.items()
            if (revision := part.revision or (shown.get(source) if part.unavailable else None))
        }
    return result


def digest(request: ModelRequest) -> str:
    """Return the SHA-256 of the JSON of `request.as_json()`."""
    messages = _ASCII.encode([message.as_sent() for message in request.messages])
    tools = ",".join(tool.ascii_text for tool in request.tools)
    text = f'{{"system":{_system(request.system)},"messages":{messages},"tools":[{tools}]}}'
    return sha256(text.encode()).hexdigest()


@lru_cache(maxsize=SYSTEM_BLOCKS_CACHED)
def _system(texts: tuple[str, ...]) -> str:
    return _ASCII.encode(texts)


def receipt_of(number: int, data: JsonObject) -> Receipt:
    first, last = data["entries"]
    return Receipt(
        number=number,
        at=Stamp(data["at"]),
        turn_id=TurnId(data["turn"]),
        model=data["model"],
        snapshot=data["snapshot"],
        deltas=data["deltas"],
        first=first,
        last=last,
        pruning=pruning_of(data["pruning"]) if "pruning" in data else None,
        length=length_of(data["length"]) if "length" in data else None,
        parts=tuple(_part_of(part) for part in data["parts"]),
        digest=data["digest"],
        remarks=tuple(map(remark_of, data.get("context", ()))),
        purpose=data.get("purpose", "turn"),
    )


def _snapshot_part(part: PromptPart) -> ShownPart:
    size = len(part.text.encode())
    left_out = part.lines_left_out
    return ShownPart(part.source, part.revision, size, left_out, part.unavailable, rows=part.rows)


def _change_part(change: PartChange, entry: int) -> ShownPart:
    return ShownPart(
        change.source,
        change.revision,
        len(change.text.encode()),
        lines_left_out=change.lines_left_out,
        unavailable=change.unavailable,
        entry=entry,
        rows=change.rows,
    )


def _platform_parts(request: ModelRequest) -> Iterator[ShownPart]:
    """Yield the platform's texts beside the snapshot. Only their number and size are recorded, because some
    of these texts are not stored anywhere."""
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
        rows=tuple(data.get("rows", ())),
    )
