"""The log of a turn: what it stores together, and what it stores under which right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Harness
from harness.conversations.conversation import Conversation
from harness.messages.message import user
from harness.models.scripted import ScriptedModel
from harness.prompts.turn_log import TurnLog
from harness.transcripts.transcript import Entry
from workspaces.coordination.lease import Bid, Lease
from workspaces.errors import Conflict, LeaseLost
from workspaces.ids import TurnId
from workspaces.storage.records import Check, Key
from workspaces.timestamp import stamp_of

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


@pytest.fixture
def harness(scripted: Scripted) -> Harness:
    return scripted()[0]


@pytest.fixture
def conversation(harness: Harness) -> Conversation:
    return harness.conversations.open(harness.agents.get("assistant").id, "c1")


def entry(harness: Harness, number: int) -> Entry:
    at = stamp_of(harness.rooms.clock.now())
    return Entry(number, at, TurnId("turn_1"), user(f"entry {number}"))


def log_under(harness: Harness, conversation: Conversation, right: Lease | Bid) -> TurnLog:
    conversations = harness.conversations
    prompt_log = conversations.prompt_log(conversation)
    return TurnLog(conversations.transcript(conversation), prompt_log, right)


def numbers(harness: Harness, conversation: Conversation) -> list[int]:
    return [one.number for one in harness.conversations.transcript(conversation).entries()]


def test_an_added_entry_is_stored_before_the_next_appended_entry(
    harness: Harness, conversation: Conversation
) -> None:
    with harness.rooms.dispatcher.leases.held(conversation.lease_key) as lease:
        log = log_under(harness, conversation, lease)
        log.add(entry(harness, 1))
        assert log.has_waiting
        assert numbers(harness, conversation) == []
        log.append(entry(harness, 2))
        assert not log.has_waiting
        assert numbers(harness, conversation) == [1, 2]


def test_the_first_append_under_a_bid_acquires_the_lease(
    harness: Harness, conversation: Conversation
) -> None:
    leases = harness.rooms.dispatcher.leases
    log = log_under(harness, conversation, leases.bid(conversation.lease_key))
    with pytest.raises(LeaseLost):
        _ = log.lease
    log.append(entry(harness, 1))
    leases.check(log.lease)
    log.append(entry(harness, 2))
    leases.release(log.lease)
    with pytest.raises(LeaseLost):
        log.append(entry(harness, 3))
    assert numbers(harness, conversation) == [1, 2]


def test_an_append_whose_other_change_conflicts_stores_nothing_and_forgets_nothing(
    harness: Harness, conversation: Conversation
) -> None:
    with harness.rooms.dispatcher.leases.held(conversation.lease_key) as lease:
        log = log_under(harness, conversation, lease)
        log.add(entry(harness, 1))
        missing = Key("nothing", "here")
        with pytest.raises(Conflict, match="nothing"):
            log.append(entry(harness, 2), also=[Check(missing, 7)])
        assert numbers(harness, conversation) == []
        log.append()
        assert numbers(harness, conversation) == [1]
