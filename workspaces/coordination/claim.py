"""Claims: they ensure that one event is processed once.

A claim is an item under the event's id. It holds a hash of the event's body as it is stored, so that the
same id with another body is detected. If forbidden texts were replaced in the body, the claim names their
rules: so the same event is recognised later, whatever has been forbidden or allowed since. The claim holds
the place where the event waits, so that a repetition leads to the same answer. Later it holds the outcome,
so that a repetition is answered without a repeated effect. If an event failed before it had any effect, its
claim is *released*. It then holds the reason, and the next caller may claim the event again.

A claim is kept for a day after it was made. A caller that repeats an event later than that means a new
event. An event in progress has no end yet, so its claim does not expire. If an event paused, its day begins
again when it continues.

Claims are made and ended in one batch with the records of their event. This module returns the changes;
its callers write them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workspaces.clock import Clock
from workspaces.conditions import ABSENT
from workspaces.errors import AnotherBody
from workspaces.storage.records import Condition, Item, JsonObject, Key, Put, RecordStore

CLAIM_S = 24 * 3600.0
REDACTED_BODY = "redacted: "
"""The beginning of a body whose hash was removed, because a forgotten text could be guessed from it. Every
body counts as the same then."""

OUTCOME_S = 3600.0
"""Shortest time for which an outcome is kept, even if it took a day to come."""


@dataclass(frozen=True, slots=True)
class ClaimedBody:
    """What a claim keeps of an event's body."""

    hash: str
    """The hash of the body as it is stored: with marks in the places of forbidden texts."""
    rules: tuple[str, ...] = ()
    """The ids of the rules that found something in it."""

    @property
    def is_redacted(self) -> bool:
        return self.hash.startswith(REDACTED_BODY)

    def as_json(self) -> JsonObject:
        return {"body": self.hash, **({"rules": [*self.rules]} if self.rules else {})}


@dataclass(frozen=True, slots=True)
class Claim:
    key: Key
    counter: int
    body: ClaimedBody
    made_at: float
    """Seconds since the epoch, by the clock of the process that made the claim."""
    about: JsonObject
    outcome: JsonObject | None = None
    refusal: JsonObject | None = None
    """The reason of the release. A claim with a reason is free."""


class Claims:
    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def find(self, key: Key) -> Claim | None:
        item = self._records.get(key)
        return _claim(item) if item else None

    def look(self, key: Key, is_same: Callable[[ClaimedBody], bool]) -> Claim | Condition:
        """Return the existing claim, or the condition under which the caller can make one. `is_same` tells
        whether a claim was made for the caller's body.

        Raises: AnotherBody, a Conflict, if the id was used with another body.
        """
        claim = self.find(key)
        if claim is None:
            return ABSENT
        if claim.refusal is not None:  # released: free for the next caller
            return claim.counter
        if not claim.body.is_redacted and not is_same(claim.body):
            raise AnotherBody("event", key.sort.partition(":")[2])
        return claim

    def made(self, key: Key, body: ClaimedBody, about: JsonObject, expect: Condition) -> Put:
        now = self._clock.now().timestamp()
        return Put(key, {**body.as_json(), "at": now, "about": about}, expect)

    def refused(self, made: Put, about: JsonObject, reason: JsonObject) -> Put:
        """Return the change that makes a claim and releases it at once."""
        value = {**made.value, "about": about, "refusal": reason}
        return Put(made.key, value, made.expect, made.value["at"] + CLAIM_S)

    def finished(self, claim: Claim, outcome: JsonObject) -> Put:
        return self._ended(claim, {"outcome": outcome})

    def resting(self, claim: Claim, outcome: JsonObject) -> Put:
        """Return the change for a paused event, with its present outcome. The claim does not expire."""
        return Put(claim.key, {**_base_value(claim), "outcome": outcome}, claim.counter)

    def resumed(self, claim: Claim) -> Put:
        """Return the change for an event that continues. Its day begins again.

        The event that resumes it is claimed for a day from now, and will look here for its outcome.
        """
        value = {**_base_value(claim), "at": self._clock.now().timestamp()}
        return Put(claim.key, value, claim.counter)

    def released(self, claim: Claim, reason: JsonObject) -> Put:
        return self._ended(claim, {"refusal": reason})

    def _ended(self, claim: Claim, end: JsonObject) -> Put:
        value = {**_base_value(claim), **end}
        now = self._clock.now().timestamp()
        expires_at = max(claim.made_at + CLAIM_S, now + OUTCOME_S)
        return Put(claim.key, value, claim.counter, expires_at)


def _base_value(claim: Claim) -> JsonObject:
    return {**claim.body.as_json(), "at": claim.made_at, "about": claim.about}


def _claim(item: Item) -> Claim:
    value = item.value
    return Claim(
        key=item.key,
        counter=item.counter,
        body=ClaimedBody(value["body"], tuple(value.get("rules", ()))),
        made_at=value["at"],
        about=value["about"],
        outcome=value.get("outcome"),
        refusal=value.get("refusal"),
    )
