"""A platform sends an event again because an answer was lost: it is the same event, whatever is forbidden."""

from __future__ import annotations

import pytest

from harness import Harness
from harness.conversations.queued_event import QueuedEvent
from harness.forgetting.selection import ForgettingRequest
from harness.messages.event import Event, SystemSaid, UserSaid
from workspaces.errors import AnotherBody

SECRET = "the heron nests in Galway"
OTHER = "a crane stands in Sligo town"


def send(harness: Harness, text: str, system: str = "") -> QueuedEvent:
    items = (UserSaid(content=text), *([SystemSaid(content=system)] if system else []))
    agent = harness.agents.get("assistant")
    event = Event("e1", "c1", items)
    return harness.rooms.dispatcher.event_queue.accept(agent.id, event, rejects=False)


def forbid(harness: Harness, text: str) -> str:
    return harness.rooms.forbidding.forbid({"text": text}).id


def sent_again(harness: Harness, first: QueuedEvent, *what: str) -> None:
    """Send it again, and something else under the same id."""
    again = send(harness, *what)
    assert (again.claim, again.number, again.is_new) == (first.claim, first.number, False)
    with pytest.raises(AnotherBody):
        send(harness, f"{what[0]} And more.", *what[1:])


def test_an_event_is_the_same_after_a_rule_was_made(harness: Harness) -> None:
    first = send(harness, f"I saw that {SECRET}.")
    forbid(harness, SECRET)
    sent_again(harness, first, f"I saw that {SECRET}.")


def test_an_event_is_the_same_after_its_rule_was_lifted(harness: Harness) -> None:
    rule_id = forbid(harness, SECRET)
    first = send(harness, f"I saw that {SECRET}.", SECRET)
    harness.rooms.forbidding.lift(rule_id)
    sent_again(harness, first, f"I saw that {SECRET}.", SECRET)


def test_an_event_is_the_same_while_its_rules_change(harness: Harness) -> None:
    """Two of the first rules cover words in common, and a third comes later."""
    rules = [forbid(harness, SECRET), forbid(harness, "nests in Galway on Sundays")]
    text = f"I saw that {SECRET} on Sundays, and {OTHER}."
    first = send(harness, text)
    forbid(harness, OTHER)
    harness.rooms.forbidding.forbid({"match": "I saw"})
    for rule_id in rules:
        harness.rooms.forbidding.lift(rule_id)
        sent_again(harness, first, text)


def test_an_event_is_the_same_after_a_forgetting_rewrote_it(harness: Harness) -> None:
    outcome = harness.run(f"I saw that {SECRET}.", conversation="c1", event_id="e1")
    forgettings = harness.rooms.forgettings
    started = forgettings.start(forgettings.plan(ForgettingRequest(text=SECRET)))
    assert forgettings.run_here(started.id).status == "done"
    for rule_id in started.tombstones:
        assert harness.run(f"I saw that {SECRET}.", conversation="c1", event_id="e1") == outcome
        harness.rooms.forbidding.lift(rule_id)
    assert harness.run(f"I saw that {SECRET}.", conversation="c1", event_id="e1") == outcome
