"""Claims: one event is processed once.

A claim is an item under the event's id. It holds a hash of the event's body, so that the same id with
another body is found out; where the event waits, so that a repetition leads to the same answer; and
later the outcome, so that a repetition is answered without a repeated effect. What failed before
anything happened is *released*: the claim then holds the reason, and whoever comes next may claim anew.

A claim is kept for a day from the moment it was made: who repeats an event later than that means a new
one. An event that is still on its way has no end yet, so its claim has none either. Of one that rested, the
day begins anew when it goes on.

Claims are made and ended together with what they are about, in one batch: this room says what the
changes are, its callers write them.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AnotherBody
from workspaces.storage.records import Condition, Item, JsonObject, Key, Put, RecordStore

CLAIM_S = 24 * 3600.0
OUTCOME_S = 3600.0
"""An outcome that took a day to come is kept at least this long."""


@dataclass(frozen=True, slots=True)
class Claim:
    key: Key
    counter: int
    body: str
    made_at: float
    """Seconds since the epoch, by the clock of whoever made it."""
    about: JsonObject
    outcome: JsonObject | None = None
    refusal: JsonObject | None = None
    """Why it was released; it is free then."""


class Claims:
    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def find(self, key: Key) -> Claim | None:
        item = self._records.get(key)
        return _claim(item) if item else None

    def look(self, key: Key, body: str) -> Claim | Condition:
        """The claim that stands already, or the condition under which one can be made.

        Conflict for an id that was used with another body.
        """
        found = self.find(key)
        if found is None:
            return ABSENT
        if found.refusal is not None:
            return found.counter
        if found.body != body:
            raise AnotherBody("event", key.sort.partition(":")[2])
        return found

    def made(self, key: Key, body: str, about: JsonObject, expect: Condition) -> Put:
        now = self._clock.now().timestamp()
        return Put(key, {"body": body, "at": now, "about": about}, expect)

    def refused(
        self, key: Key, body: str, about: JsonObject, expect: Condition, why: JsonObject
    ) -> Put:
        """A claim that is released as it is made."""
        now = self._clock.now().timestamp()
        value = {"body": body, "at": now, "about": about, "refusal": why}
        return Put(key, value, expect, now + CLAIM_S)

    def finished(self, claim: Claim, outcome: JsonObject) -> Put:
        return self._ended(claim, {"outcome": outcome})

    def resting(self, claim: Claim, outcome: JsonObject) -> Put:
        """How it stands, for now: it is not over, so the claim has no end."""
        return Put(claim.key, {**_standing(claim), "outcome": outcome}, claim.counter)

    def resumed(self, claim: Claim) -> Put:
        """On its way again, by an event that is claimed a day from now: it will look here for its outcome."""
        value = {**_standing(claim), "at": self._clock.now().timestamp()}
        return Put(claim.key, value, claim.counter)

    def released(self, claim: Claim, why: JsonObject) -> Put:
        return self._ended(claim, {"refusal": why})

    def _ended(self, claim: Claim, end: JsonObject) -> Put:
        value = {**_standing(claim), **end}
        now = self._clock.now().timestamp()
        expires_at = max(claim.made_at + CLAIM_S, now + OUTCOME_S)
        return Put(claim.key, value, claim.counter, expires_at)


def _standing(claim: Claim) -> JsonObject:
    return {"body": claim.body, "at": claim.made_at, "about": claim.about}


def _claim(item: Item) -> Claim:
    value = item.value
    return Claim(
        item.key,
        item.counter,
        value["body"],
        value["at"],
        value["about"],
        value.get("outcome"),
        value.get("refusal"),
    )
