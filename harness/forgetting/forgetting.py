"""A forgetting: what was asked, what was found, and how far it is. The text is in no field.

    forgettings:<account>    <id>    {status, selector, by, at, reason?, found, unreachable, machines, …}

Until it is done, the phrases are there as tombstones. A process that goes on after a crash finds them by
these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.forgetting.found import (
    BeyondReach,
    Findings,
    PlaceCount,
    found_of,
    unreachable_of,
)
from workspaces.conditions import ABSENT
from workspaces.errors import NotFound
from workspaces.forgetting.matcher import Matcher
from workspaces.forgetting.tombstone import TextTombstone, tombstone_from_json
from workspaces.ids import AccountId
from workspaces.storage.records import (
    Condition,
    Delete,
    JsonObject,
    Key,
    Put,
    RecordStore,
    with_prefix,
)
from workspaces.timestamp import Stamp

ForgettingStatus = Literal[
    "planned",  # its job is due
    "running",
    "waiting",  # for a turn to end, or for a store to answer
    "done",
]

Selector = Literal["text", "match", "line", "revision", "conversation", "heard"]
"""What a forgetting was asked by. `heard`: another machine of the account has forgotten it."""

PLACES_KEPT_MAX = 200
"""Places that a record names. The counts of all others are summed by their kind."""


@dataclass(frozen=True, slots=True)
class MachineHeard:
    """A machine of the account, and when it heard of the forgetting. None: it has yet to hear."""

    id: str
    heard_at: Stamp | None

    def as_json(self) -> JsonObject:
        return {"id": self.id, "heardAt": self.heard_at}


@dataclass(frozen=True, slots=True)
class TombstonePhrases:
    """The phrases of a forgetting as tombstones, with their key: enough to find them, not to read them."""

    key: bytes
    tombstones: tuple[TextTombstone, ...]

    def matcher(self) -> Matcher:
        return Matcher(self.tombstones, self.key)

    def as_json(self) -> JsonObject:
        return {
            "key": self.key.hex(),
            "tombstones": [one.as_json() for one in self.tombstones],
        }


@dataclass(frozen=True, slots=True)
class Forgetting:
    id: str
    status: ForgettingStatus
    selector: Selector
    by: str
    """The id of the user who asked."""
    at: Stamp
    reason: str = ""
    found: tuple[PlaceCount, ...] = ()
    unreachable: tuple[BeyondReach, ...] = ()
    machines: tuple[MachineHeard, ...] = ()
    tombstones: tuple[str, ...] = ()
    """The ids of its tombstones, which the marks name."""
    phrases: TombstonePhrases | None = None
    """What to look for, until it is done."""
    machine: str = ""
    """The machine on which it was asked for. Empty for one of another machine."""
    conversation: str | None = None
    """The id of the conversation to delete."""
    may_repeat: tuple[str, ...] = ()
    """What was made from a place that held the text, and may say the same in other words."""
    touched: tuple[str, ...] = ()
    """Files in which something was replaced, as `<namespace>/<path>`."""
    waits_for: str | None = None
    done_at: Stamp | None = None
    counter: Condition = field(default=ABSENT, compare=False)

    @property
    def count(self) -> int:
        """Return the number of phrases that were found."""
        return sum(one.count for one in self.found)

    def as_json(self) -> JsonObject:
        """Return the JSON that people and programs see."""
        return {
            "id": self.id,
            "status": self.status,
            "selector": self.selector,
            "by": self.by,
            "at": self.at,
            "reason": self.reason,
            "found": [one.as_json() for one in self.found],
            "count": self.count,
            "unreachable": [one.as_json() for one in self.unreachable],
            "machines": [one.as_json() for one in self.machines],
            "tombstones": list(self.tombstones),
            "mayRepeat": list(self.may_repeat),
            **({"conversation": self.conversation} if self.conversation else {}),
            **({"waitsFor": self.waits_for} if self.waits_for else {}),
            **({"doneAt": self.done_at} if self.done_at else {}),
        }

    def stored(self) -> JsonObject:
        return {
            **self.as_json(),
            "touched": list(self.touched),
            "machine": self.machine,
            **({"phrases": self.phrases.as_json()} if self.phrases else {}),
        }

    def with_findings(self, findings: Findings) -> Forgetting:
        """Return the forgetting with what a pass found, and what an earlier one has."""
        counts = {one.place: one.count for one in self.found}
        for one in findings.found:
            counts[one.place] = max(one.count, counts.get(one.place, 0))
        found = tuple(PlaceCount(place, count) for place, count in counts.items())
        unreachable = dict.fromkeys((*self.unreachable, *findings.unreachable))
        return replace(self, found=shortened(found), unreachable=tuple(unreachable))


def shortened(found: Sequence[PlaceCount]) -> tuple[PlaceCount, ...]:
    """Return as many places as a record holds, and one for the rest of each kind."""
    first, rest = found[:PLACES_KEPT_MAX], found[PLACES_KEPT_MAX:]
    sums = Findings()
    for one in first:
        sums.add(one.place, one.count)
    for one in rest:
        sums.add(one.place._replace(path=None, revision=None, conversation=None), one.count)
    return sums.found


class ForgettingRecords:
    """The stored forgettings of an account. Threads may share it."""

    def __init__(
        self, account_id: AccountId, records: RecordStore, machine: str | None = None
    ) -> None:
        """Open the list; with `machine` that of the forgettings of others, where records are shared."""
        self._partition = ":".join(["forgettings", account_id, *([machine] if machine else [])])
        self._records = records

    def get(self, forgetting_id: str) -> Forgetting:
        """Return the forgetting with this id.

        Raises: NotFound.
        """
        item = None
        if 0 < len(forgetting_id) <= _ID_CHARACTERS_MAX and forgetting_id.isascii():
            item = self._records.get(self._key(forgetting_id))
        if item is None:
            raise NotFound("forgetting", forgetting_id, remedy="`harness forget show` lists them")
        return _forgetting(forgetting_id, item.value, item.counter)

    def has(self, forgetting_id: str) -> bool:
        return self._records.get(self._key(forgetting_id)) is not None

    def list(self) -> list[Forgetting]:
        """Return all forgettings, newest first."""
        items = with_prefix(self._records, self._partition, "")
        found = (_forgetting(item.key.sort, item.value, item.counter) for item in items)
        return sorted(found, key=lambda one: (one.at, one.id), reverse=True)

    def erase(self) -> None:
        """Delete all forgettings of an account that is being deleted."""
        for item in with_prefix(self._records, self._partition, ""):
            self._records.write(Delete(item.key))

    def put(self, forgetting: Forgetting) -> Put:
        """Return the change that stores the forgetting in its present state."""
        return Put(self._key(forgetting.id), forgetting.stored(), forgetting.counter)

    def write(self, forgetting: Forgetting) -> Forgetting:
        """Store the forgetting.

        Raises: Conflict if another process has changed it.
        """
        (counter,) = self._records.write(self.put(forgetting))
        return replace(forgetting, counter=counter)

    def _key(self, forgetting_id: str) -> Key:
        return Key(self._partition, forgetting_id)


_ID_CHARACTERS_MAX = 64


def _phrases(value: JsonObject) -> TombstonePhrases:
    tombstones = map(tombstone_from_json, value["tombstones"])
    return TombstonePhrases(bytes.fromhex(value["key"]), tuple(tombstones))


def _forgetting(forgetting_id: str, value: JsonObject, counter: Condition) -> Forgetting:
    return Forgetting(
        id=forgetting_id,
        status=value["status"],
        selector=value["selector"],
        by=value["by"],
        at=Stamp(value["at"]),
        reason=value.get("reason", ""),
        found=found_of(value["found"]),
        unreachable=unreachable_of(value["unreachable"]),
        machines=tuple(MachineHeard(one["id"], one["heardAt"]) for one in value["machines"]),
        tombstones=tuple(value["tombstones"]),
        phrases=_phrases(value["phrases"]) if "phrases" in value else None,
        machine=value.get("machine", ""),
        conversation=value.get("conversation"),
        may_repeat=tuple(value.get("mayRepeat", ())),
        touched=tuple(value.get("touched", ())),
        waits_for=value.get("waitsFor"),
        done_at=value.get("doneAt"),
        counter=counter,
    )
