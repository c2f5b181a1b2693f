"""Invalid input and a missing key, budget or agent: each is an outcome, the conversation stays intact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Harness
from harness.context.repair import repair
from harness.messages.event import CONTENT_CHARACTERS_MAX, Approval, Event, SystemSaid, UserSaid
from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from tests.harness.messages_server import KEY, MessagesServer, says, text
from workspaces.errors import Conflict, Exhausted, NotFound, Refused

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

SONNET = "claude-sonnet-5"


def assert_intact(harness: Harness, key: str = "c1") -> None:
    """The next question can be put without leaving anything out."""
    entries = list(harness.conversations.transcript(harness.conversation(key)).entries())
    parts = [part for entry in entries for part in entry.message.parts]
    sent = repair(tuple(entry.message for entry in entries))
    assert [part for message in sent for part in message.parts] == parts


def test_a_wrong_provider_key_fails_the_turn_and_the_next_turn_keeps_its_message(
    home: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-wrong")
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        outcome = harness.run("hello", conversation="c1", event_id="e1")
        assert outcome.failure is not None
        assert (outcome.status, outcome.failure.kind) == ("failed", "key")
        assert "ANTHROPIC_API_KEY" in outcome.failure.remedy
        assert_intact(harness)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    server.answers(says(text("hi")))
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        assert harness.run("hello", conversation="c1", event_id="e1") == outcome, "it was said once"
        assert harness.run("are you there?", conversation="c1").reply == "hi"
        assert_intact(harness)
    (asked,) = server.requests
    said = [block["text"] for block in asked["messages"][0]["content"]]
    assert said == ["hello", "are you there?"]


def test_blank_system_messages_and_instructions_are_left_out_of_the_request(
    home: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    said = UserSaid(content="hello")
    blank = (SystemSaid(content="", persist=True), SystemSaid(content=" \n"), said)
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        nothing = {"workspaces": [], "private": "off", "system": " \n"}
        agent = harness.agents.patch("assistant", {"config": nothing})
        server.answers(says(text("one")), says(text("two")))
        event = Event("e1", "c1", blank, "\t")
        asyncio.run(harness.rooms.dispatcher.run(agent, event))
        assert harness.run("and now?", conversation="c1").reply == "two"
    systems = [[block["text"] for block in asked["system"]] for asked in server.requests]
    assert all(len(system) == 1 and "Today is" in system[0] for system in systems)


@pytest.fixture
def costly(home: Path) -> Iterator[Harness]:
    """Each answer costs a thousandth of a dollar and more."""
    model = ScriptedModel(*["x" * 1_000] * 4, name=SONNET)
    with Harness.open(home, model=model, sandbox=NoSandbox("not here")) as opened:
        yield opened


def test_an_event_refused_by_the_budget_is_answered_after_the_budget_is_raised(
    costly: Harness,
) -> None:
    account = costly.rooms.account
    account.patch({"config": {"limits": {"dollarsPerDay": 0.001}}})
    assert costly.run("one", conversation="c1").status == "done"
    with pytest.raises(Exhausted):
        costly.run("two", conversation="c1", event_id="e2")
    agent = costly.agents.get("assistant")
    assert costly.rooms.dispatcher.status(agent.id, "e2").state == "refused"
    assert [view for view in costly.jobs.list() if view.job.kind == "turn"] == []
    account.patch({"config": {"limits": {"dollarsPerDay": 1.0}}})
    assert costly.run("two", conversation="c1", event_id="e2").status == "done"
    assert_intact(costly)


def test_an_approval_refused_by_the_budget_leaves_the_turn_waiting(home: Path) -> None:
    write = ToolCall("w1", "write", {"path": "a.md", "content": "x" * 1_000})
    model = ScriptedModel([write], "x" * 1_000, "Done.", name=SONNET)
    with Harness.open(home, model=model, sandbox=NoSandbox("not here")) as harness:
        harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
        harness.run("one", conversation="c1")
        model.script("x" * 1_000, "Done.")
        harness.run("something else that costs", conversation="c2")
        harness.rooms.account.patch({"config": {"limits": {"dollarsPerDay": 0.001}}})
        conversation = harness.conversation("c1")
        allowed = Approval(call_id="w1", is_allowed=True)
        with pytest.raises(Exhausted):
            harness.answer(conversation, allowed, event_id="a1")
        assert [one.id for one in harness.pending(conversation)] == ["w1"]
        harness.rooms.account.patch({"config": {"limits": {"dollarsPerDay": 1.0}}})
        assert harness.answer(conversation, allowed, event_id="a1").reply == "Done."
        assert_intact(harness)


def test_a_message_of_the_maximum_length_is_stored_whole_and_a_longer_message_is_refused(
    scripted: Scripted,
) -> None:
    harness, model = scripted("I have read it.", "And on.")
    whole = "wörd " * (CONTENT_CHARACTERS_MAX // 5)
    assert harness.run(whole, conversation="c1").reply == "I have read it."
    with pytest.raises(Refused, match="10,000,000 characters"):
        harness.run(whole + "more", conversation="c1")
    assert harness.run("and?", conversation="c1").reply == "And on."
    assert model.requests[0].messages[0].text == whole
    assert_intact(harness)


def test_an_unknown_agent_and_a_used_event_id_create_no_conversation(scripted: Scripted) -> None:
    harness, model = scripted("one")
    with pytest.raises(NotFound):
        harness.run("hello", agent="nobody", conversation="c1")
    assert harness.conversations.list() == []
    harness.run("hello", conversation="c1", event_id="e1")
    for other in ("hello!", "hello "):
        with pytest.raises(Conflict):
            harness.run(other, conversation="c1", event_id="e1")
    with pytest.raises(Conflict):
        harness.run("hello", conversation="c2", event_id="e1")
    assert [one.key for one in harness.conversations.list()] == ["c1"]
    assert len(model.requests) == 1


def test_a_pending_call_of_a_deleted_agent_is_not_run(scripted: Scripted) -> None:
    harness, _ = scripted([ToolCall("w1", "write", {"path": "a.md", "content": "x"})], "never")
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    harness.run("one", conversation="c1")
    conversation = harness.conversation("c1")
    agent = harness.agents.get("assistant")
    harness.agents.delete("assistant")
    with pytest.raises(NotFound):
        harness.answer(conversation, Approval(call_id="w1", is_allowed=True))
    event = Event("a1", "c1", (Approval(call_id="w1", is_allowed=True),))
    with pytest.raises(NotFound):
        harness._loop.run(harness.rooms.dispatcher.run(agent, event))
    assert [one.id for one in harness.pending(conversation)] == ["w1"]
    assert not (harness.workspaces.get("notes").root / "a.md").exists()
