"""Describe an event as it comes in: what of it is stored, and whether it was delivered before.

Forbidden texts are replaced by marks before anything is stored, and a hash of the body would let a short text
be guessed. So the hash of the marked body is compared. What is forbidden may change between two deliveries:
the claim names the rules that found something in the first one. The second is marked by the same rules, and
then both are equal if and only if their bodies are, apart from the forbidden texts themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from harness.messages.event import Event, body_hash_of
from harness.messages.marking import marked_event
from workspaces.coordination.claim import ClaimedBody
from workspaces.forgetting.rule_set import Marking

NewMarking = Callable[[Collection[str] | None], Marking]
"""Returns a marking for the texts of one event, by the rules with these ids. None: by all that count now."""


def nothing_forbidden(_: Collection[str] | None) -> Marking:
    """Return a marking that changes nothing."""
    return Marking()


class IncomingEvent:
    def __init__(self, sent: Event, new_marking: NewMarking) -> None:
        self._sent = sent
        self._new_marking = new_marking
        marking = new_marking(None)
        self.event = marked_event(sent, marking)
        """The event as it is stored."""
        self.json = self.event.as_json()
        self.body = ClaimedBody(body_hash_of(self.json), tuple(sorted(marking.rule_ids)))

    def has_body(self, claimed: ClaimedBody) -> bool:
        """Return True if a claim was made for this event."""
        if claimed.hash == self.body.hash:
            return True
        if claimed.rules == self.body.rules:
            return False
        then = marked_event(self._sent, self._new_marking(claimed.rules))
        return claimed.hash == body_hash_of(then.as_json())
