"""Claims: one event is processed once.

A claim is an item under the event's id. It holds a hash of the event's body, so that the same id with
another body is found out, and later the outcome, so that a repetition is answered without a repeated
effect. It expires a day after it was made: who repeats an event later than that means a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.clock import Clock
from workspaces.errors import Busy, Conflict
from workspaces.expect import ABSENT
from workspaces.ids import AccountId
from workspaces.process import is_dead, this_process
from workspaces.records import Counter, Delete, JsonObject, Key, Put, RecordStore

CLAIM_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Claim:
    key: Key
    counter: Counter
    value: JsonObject
    expires_at: float
    outcome: JsonObject | None = None
    """What came of the event when it was processed before."""


class Claims:
    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def claim(self, account_id: AccountId, event_id: str, body_hash: str) -> Claim:
        """The right to process an event, or a claim that holds its earlier outcome.

        Conflict for an id that was used with another body; Busy while another process is at it.
        """
        key = Key(f"claims:{account_id}", event_id)
        value = {"body": body_hash, "process": this_process(), "outcome": None}
        expires_at = self._clock.now().timestamp() + CLAIM_S
        found = self._records.get(key)
        if found is None:
            expect = ABSENT
        elif found.value["body"] != body_hash:
            raise Conflict("event", event_id, expected="the same body", actual="another one")
        elif found.value["outcome"] is not None:
            return Claim(key, found.counter, found.value, expires_at, found.value["outcome"])
        elif is_dead(found.value["process"]):
            expect = found.counter
        else:
            raise Busy(f"event {event_id!r}", holder="another process")
        try:
            (counter,) = self._records.write(Put(key, value, expect, expires_at))
        except Conflict:
            raise Busy(f"event {event_id!r}", holder="a process that was faster") from None
        return Claim(key, counter, value, expires_at)

    def finish(self, claim: Claim, outcome: JsonObject) -> None:
        value = {**claim.value, "outcome": outcome}
        self._records.write(Put(claim.key, value, claim.counter, claim.expires_at))

    def release(self, claim: Claim) -> None:
        """Nothing has happened yet: the event may be claimed again."""
        self._records.write(Delete(claim.key, expect=claim.counter))
