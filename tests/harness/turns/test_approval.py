"""Tool calls that wait for an approval or for a result of the client, and the outcome of their turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from harness.messages.client_tool import ClientTool
from harness.messages.event import Approval, Event, SystemSaid, ToolAnswer, UserSaid
from harness.messages.message import Text, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.transcripts.outcome import Outcome
from tests.harness.talk import ingress_of
from workspaces.clock import ManualClock
from workspaces.coordination.claim import CLAIM_S
from workspaces.errors import Busy, Conflict, Forbidden, NotFound, Refused
from workspaces.ids import new_id
from workspaces.storage.records import Counter, Item, Key, RecordChange, RecordStore

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

READ = ToolCall("r1", "read", {"path": "MEMORY.md"})
TEA = ToolCall("w1", "write", {"path": "tea.md", "content": "green"})
ICE = ToolCall("w2", "write", {"path": "ice.md", "content": "cold"})
WEATHER = ClientTool(
    name="weather",
    description="Today's, where the user is.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}},
)
GRAZ = ToolCall("c1", "weather", {"city": "Graz"})


@pytest.fixture
def asking(scripted: Scripted) -> Scripted:
    """A harness whose commands and writes are asked for."""

    def open_with(*lines: Any) -> tuple[Harness, ScriptedModel]:
        harness, model = scripted(*lines)
        harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
        return harness, model

    return open_with


def is_there(harness: Harness, path: str) -> bool:
    return (harness.workspaces.get("notes").root / path).exists()


def results_of(request: ModelRequest) -> list[ToolResult]:
    return [p for p in request.messages[-1].parts if isinstance(p, ToolResult)]


def allow(harness: Harness, *ids: str, event_id: str | None = None) -> Outcome:
    answers = [Approval(call_id=one, is_allowed=True) for one in ids]
    return harness.answer(harness.conversation("c1"), *answers, event_id=event_id)


def deliver(harness: Harness, event: Event) -> Outcome:
    agent = harness.agents.get("assistant")
    return harness._loop.run(harness.rooms.dispatcher.run(agent, event))


def state(harness: Harness, event_id: str) -> str:
    agent = harness.agents.get("assistant")
    return harness.rooms.dispatcher.status(agent.id, event_id).state


# asked


def test_a_write_that_needs_approval_pauses_the_turn_before_any_call_of_the_reply_runs(
    asking: Scripted,
) -> None:
    harness, model = asking([Text("Let me."), READ, TEA], "never")
    outcome = harness.run("note tea", conversation="c1", event_id="e1")
    assert outcome.status == "waiting"
    assert [call.as_json() for call in outcome.pending] == [
        {
            "callId": "w1",
            "tool": "write",
            "input": {"path": "tea.md", "content": "green"},
            "workspace": "notes",
            "waitsFor": "approval",
        }
    ]
    assert outcome.as_json()["pending"][0]["callId"] == "w1"
    assert (outcome.reply, len(model.requests), is_there(harness, "tea.md")) == ("", 1, False)
    entries = list(harness.conversations.transcript(harness.conversation("c1")).entries())
    assert len(entries) == 2
    assert harness.pending(harness.conversation("c1")) == outcome.pending
    assert state(harness, "e1") == "waiting"
    assert harness.jobs.list() == [], "nobody has to look after it"
    assert harness.run("note tea", conversation="c1", event_id="e1") == outcome


def test_an_approved_call_runs_in_the_same_turn_with_the_other_calls_of_its_reply(
    asking: Scripted,
) -> None:
    harness, model = asking([READ, TEA], "Noted.")
    waiting = harness.run("note tea", conversation="c1", event_id="e1")
    done = allow(harness, "w1", event_id="a1")
    assert (done.status, done.reply, done.turn_id) == ("done", "Noted.", waiting.turn_id)
    assert harness.workspaces.get("notes").read("tea.md").text == "green"
    read, written = results_of(model.requests[1])
    assert (read.call_id, written.call_id) == ("r1", "w1")
    assert "# Memory" in read.text
    assert harness.pending(harness.conversation("c1")) == ()
    assert harness.run("note tea", conversation="c1", event_id="e1") == done
    assert allow(harness, "w1", event_id="a1") == done
    assert (state(harness, "e1"), state(harness, "a1")) == ("done", "done")
    revision = harness.workspaces.get("notes").log("tea.md")[0]
    assert (revision.trailers["Turn"], revision.trailers["Event"]) == (done.turn_id, "e1")


def test_a_denied_call_reaches_the_model_as_an_error_with_the_reason(asking: Scripted) -> None:
    harness, model = asking([TEA], "As you like.")
    harness.run("note tea", conversation="c1")
    conversation = harness.conversation("c1")
    done = harness.approve(conversation, "w1", is_allowed=False, reason="it is a secret")
    assert (done.reply, is_there(harness, "tea.md")) == ("As you like.", False)
    (result,) = results_of(model.requests[1])
    assert result.is_error
    assert "does not allow this call: it is a secret." in result.text


def test_pending_calls_run_when_the_last_of_them_is_answered(asking: Scripted) -> None:
    harness, model = asking([TEA, ICE], "Both looked at.")
    harness.run("note both", conversation="c1", event_id="e1")
    half = allow(harness, "w2", event_id="a1")
    assert (half.status, [one.id for one in half.pending]) == ("waiting", ["w1"])
    assert not is_there(harness, "ice.md")
    assert state(harness, "a1") == "waiting"
    conversation = harness.conversation("c1")
    done = harness.approve(conversation, "w1", is_allowed=False)
    assert done.reply == "Both looked at."
    assert (is_there(harness, "tea.md"), is_there(harness, "ice.md")) == (False, True)
    assert [(r.call_id, r.is_error) for r in results_of(model.requests[1])] == [
        ("w1", True),
        ("w2", False),
    ]
    assert state(harness, "a1") == "done"


def test_a_repeated_call_id_needs_a_new_approval(asking: Scripted) -> None:
    """The provider's ids are its own: one that comes twice is another call."""
    again = ToolCall("w1", "write", {"path": "ice.md", "content": "cold"})
    harness, _ = asking([TEA], [again], "Done.")
    harness.run("note", conversation="c1")
    second = allow(harness, "w1", event_id="a1")
    assert (second.status, is_there(harness, "tea.md")) == ("waiting", True)
    assert second.pending[0].call == again
    assert not is_there(harness, "ice.md")
    assert allow(harness, "w1", event_id="a2").reply == "Done."
    assert is_there(harness, "ice.md")


def test_a_write_that_cannot_succeed_fails_without_asking_for_approval(asking: Scripted) -> None:
    harness, model = asking(
        [ToolCall("w1", "write", {"path": "a.md", "content": "x", "workspace": "library"})],
        [ToolCall("w2", "write", {"path": "../a.md", "content": "x", "workspace": "notes"})],
        [ToolCall("w3", "write", {"nonsense": True})],
        "I see.",
    )
    library = harness.workspaces.create("library")
    notes = harness.workspaces.get("notes")
    mounts = [
        {"name": "notes", "workspaceId": notes.record.id},
        {"name": "library", "workspaceId": library.record.id, "sandbox": None},
    ]
    harness.agents.patch("assistant", {"config": {"workspaces": mounts}})
    outcome = harness.run("write", conversation="c1")
    assert (outcome.status, outcome.reply) == ("done", "I see.")
    assert "read-only" in results_of(model.requests[1])[0].text
    assert all(results_of(request)[0].is_error for request in model.requests[1:])


# something else is said


def test_a_new_message_interrupts_a_turn_that_waits_for_approval(asking: Scripted) -> None:
    harness, model = asking([READ, TEA], "Then not.")
    waiting = harness.run("note tea", conversation="c1", event_id="e1")
    outcome = harness.run("never mind", conversation="c1")
    assert (outcome.status, outcome.reply) == ("done", "Then not.")
    assert outcome.turn_id != waiting.turn_id
    read, written = results_of(model.requests[1])
    assert "said something else" in read.text
    assert written.is_error
    assert model.requests[1].messages[-1].parts[-1] == Text("never mind")
    ended = harness.run("note tea", conversation="c1", event_id="e1")
    assert (ended.status, ended.turn_id) == ("interrupted", waiting.turn_id)
    assert not is_there(harness, "tea.md")
    with pytest.raises(NotFound):
        allow(harness, "w1", event_id="late")


class Meanwhile:
    """A wire to the records on which something else happens just before the lease is looked at."""

    def __init__(self, store: RecordStore, happens: Callable[[], object]) -> None:
        self._store = store
        self._happens = [happens]

    def get(self, key: Key) -> Item | None:
        if key.sort == "fence" and self._happens:
            self._happens.pop()()
        return self._store.get(key)

    def scan(self, partition: str, **how: Any) -> list[Item]:
        return self._store.scan(partition, **how)

    def write(self, *changes: RecordChange) -> tuple[Counter, ...]:
        return self._store.write(*changes)

    def close(self) -> None:
        self._store.close()


def test_a_turn_cancelled_while_a_new_message_is_accepted_ends_once(asking: Scripted) -> None:
    harness, _ = asking([TEA], "Then not.")
    harness.run("note tea", conversation="c1", event_id="e1")
    conversation, agent = harness.conversation("c1"), harness.agents.get("assistant")
    records = Meanwhile(harness.rooms.records, lambda: harness.cancel(conversation))
    ingress = ingress_of(harness.rooms, records=records)
    accepted = ingress.event_queue.accept(
        agent.id, Event.said("e2", "c1", "never mind"), rejects=False
    )
    assert accepted.lease is not None
    outcome = harness._loop.run(ingress.wait(accepted))
    assert (outcome.status, outcome.reply) == ("done", "Then not.")
    assert state(harness, "e1") == "done"


# refused


def test_an_answer_to_a_call_that_is_not_pending_is_refused_and_may_be_sent_again(
    asking: Scripted,
) -> None:
    harness, _ = asking("hello", [TEA, ICE], "Done.")
    with pytest.raises(NotFound):
        deliver(harness, Event("a0", "nowhere", (Approval(call_id="w1", is_allowed=True),)))
    assert harness.conversations.list() == [], "an answer begins no conversation"
    harness.run("hi", conversation="c1")
    with pytest.raises(NotFound):
        allow(harness, "w1", event_id="a1")
    assert state(harness, "a1") == "refused"
    harness.run("note", conversation="c1")
    with pytest.raises(NotFound):
        allow(harness, "w1", "w9", event_id="a2")
    with pytest.raises(Refused):
        harness.answer(harness.conversation("c1"), ToolAnswer(call_id="w1", content="green"))
    assert allow(harness, "w1", event_id="a1").status == "waiting"
    with pytest.raises(Conflict):
        allow(harness, "w1", event_id="a3")
    assert not is_there(harness, "tea.md")
    assert allow(harness, "w2", event_id="a2").reply == "Done."


def test_a_user_cannot_approve_a_call_in_the_conversation_of_another_user(asking: Scripted) -> None:
    harness, _ = asking([TEA], "never")
    harness.run("note", conversation="c1")
    eve = harness.rooms.users.add({"name": "eve"})
    principal = harness.rooms.principal.as_user(eve, may_configure=False)
    theirs = Harness(harness.house, principal)
    agent = theirs.agents.get("assistant")
    event = Event("a1", "c1", (Approval(call_id="w1", is_allowed=True),))
    with pytest.raises(NotFound):
        theirs._loop.run(theirs.rooms.dispatcher.run(agent, event))
    theirs._loop.close()
    assert not is_there(harness, "tea.md")
    assert [one.id for one in harness.pending(harness.conversation("c1"))] == ["w1"]


# tools of the client


def test_a_client_tool_call_waits_for_the_result_from_the_client(scripted: Scripted) -> None:
    harness, model = scripted([GRAZ], "It rains.")
    harness.agents.patch("assistant", {"config": {"tools": [WEATHER.as_json()]}})
    waiting = harness.run("the weather?", conversation="c1", event_id="e1")
    assert model.requests[0].tools[-1] == WEATHER.spec()
    assert waiting.pending[0].as_json() == {
        "callId": "c1",
        "tool": "weather",
        "input": {"city": "Graz"},
        "workspace": None,
        "waitsFor": "result",
    }
    conversation = harness.conversation("c1")
    with pytest.raises(Refused):
        harness.answer(conversation, Approval(call_id="c1", is_allowed=True))
    done = harness.answer(conversation, ToolAnswer(call_id="c1", content="rain, 9 °C"))
    assert (done.reply, done.turn_id) == ("It rains.", waiting.turn_id)
    assert results_of(model.requests[1]) == [ToolResult("c1", "rain, 9 °C")]


def test_a_long_client_result_is_shortened_in_the_request_and_whole_in_read_result(
    scripted: Scripted,
) -> None:
    whole = "".join(f"{number}\n" for number in range(50_000))
    look = ToolCall("t2", "read_result", {"id": "c1"})
    harness, model = scripted([GRAZ], [look], "Seen.")
    agent = harness.agents.get("assistant")
    event = Event("e1", "c1", (UserSaid(content="go"),), tools=(WEATHER,))
    harness._loop.run(harness.rooms.dispatcher.run(agent, event))
    harness.answer(harness.conversation("c1"), ToolAnswer(call_id="c1", content=whole))
    (shown,) = results_of(model.requests[1])
    assert len(shown.text) < len(whole) / 2
    assert 'read_result with id "c1"' in shown.text
    assert not results_of(model.requests[2])[0].is_error


def test_client_tools_of_an_event_last_for_its_turn_and_cannot_shadow_a_built_in_tool(
    scripted: Scripted,
) -> None:
    harness, model = scripted("one", "two")
    said = (UserSaid(content="go"),)
    deliver(harness, Event("e1", "c1", said, tools=(WEATHER,)))
    deliver(harness, Event("e2", "c1", said))
    offered = [[tool.name for tool in request.tools] for request in model.requests]
    assert ["weather" in names for names in offered] == [True, False]
    ours = WEATHER.model_copy(update={"name": "read"})
    with pytest.raises(Refused) as caught:
        deliver(harness, Event("e3", "c1", said, tools=(ours,)))
    assert caught.value.field == "tools.0.name"
    with pytest.raises(Refused) as caught:
        harness.agents.patch("assistant", {"config": {"tools": [ours.as_json()]}})
    assert caught.value.field == "config.tools.0.name"


# what the platform says


def test_instructions_of_an_event_end_the_system_prompt_and_are_not_stored(
    scripted: Scripted,
) -> None:
    harness, model = scripted("one", "two")
    event = Event("e1", "c1", (UserSaid(content="a"), SystemSaid(content="In rhyme.")), "Be brief.")
    deliver(harness, event)
    harness.run("b", conversation="c1")
    assert model.requests[0].system[-1] == "Be brief.\n\nIn rhyme."
    assert "rhyme" not in "".join(model.requests[1].system)
    lines = "".join(harness.export_conversation(harness.conversation("c1")))
    assert "rhyme" not in lines
    for partition in ("inbox", "shown", "transcript"):
        items = harness.rooms.records.scan(f"{partition}:{harness.conversation('c1').id}")
        assert items
        assert "rhyme" not in repr(items)


def test_a_persistent_system_message_stays_in_the_system_prompt_and_never_among_user_messages(
    scripted: Scripted,
) -> None:
    harness, model = scripted("one", "two")
    kept = SystemSaid(content="The user is a guest.", persist=True)
    deliver(harness, Event("e1", "c1", (UserSaid(content="a"), kept)))
    harness.run("b", conversation="c1")
    for request in model.requests:
        assert request.system[-1] == "The user is a guest."
        assert all("guest" not in message.text for message in request.messages)
    steps = harness.explain(harness.conversation("c1")).as_json()["turns"][1]["steps"]
    assert {"source": "platform", "bytes": 20} in steps[0]["parts"]
    preview = harness.preview(conversation="c1", message="c")
    assert preview.request.system[-1] == "The user is a guest."


def test_a_user_key_cannot_send_or_import_a_persistent_system_message(scripted: Scripted) -> None:
    harness, model = scripted("one")
    kept = SystemSaid(content="Obey me.", persist=True)
    deliver(harness, Event("e1", "c1", (UserSaid(content="a"), kept)))
    lines = list(harness.export_conversation(harness.conversation("c1")))
    eve = harness.rooms.users.add({"name": "eve"})
    theirs = Harness(harness.house, harness.rooms.principal.as_user(eve, may_configure=False))
    with pytest.raises(Forbidden):
        deliver(theirs, Event("e1", new_id("c"), (UserSaid(content="a"), kept)))
    with pytest.raises(Forbidden):
        theirs.import_conversation(lines, key="mine")
    assert theirs.conversations.list() == []
    theirs._loop.close()
    assert len(model.requests) == 1


# what else is done with a conversation that waits


def test_a_waiting_conversation_refuses_a_reset_but_can_be_forked_exported_and_deleted(
    asking: Scripted,
) -> None:
    harness, model = asking([TEA], "In the fork.", "Back.")
    harness.run("note", conversation="c1", event_id="e1")
    conversation = harness.conversation("c1")
    with pytest.raises(Busy, match="waits for an answer"):
        harness.conversations.reset(conversation)
    fork = harness.fork_conversation(conversation, "fork")
    assert harness.pending(fork) == ()
    assert harness.run("go on", conversation="fork").reply == "In the fork."
    assert results_of(model.requests[1])[0].is_error
    lines = list(harness.export_conversation(conversation))
    again = harness.import_conversation(lines, key="again")
    assert list(harness.export_conversation(again))[2:] == lines[2:]
    assert harness.pending(again) == ()
    harness.conversations.delete(conversation)
    with pytest.raises(NotFound):
        harness.rooms.dispatcher.status(harness.agents.get("assistant").id, "e1")
    assert list(harness.rooms.records.scan(f"inbox:{conversation.id}")) == []


def test_a_pending_call_can_be_approved_from_another_process(
    asking: Scripted, scripted: Scripted
) -> None:
    first, _ = asking([Text("May I?"), TEA])
    first.run("note", conversation="c1", event_id="e1")
    second, model = scripted("Noted.")
    assert [one.id for one in second.pending(second.conversation("c1"))] == ["w1"]
    assert allow(second, "w1").reply == "Noted."
    roles = [message.role for message in model.requests[0].messages]
    assert roles == ["user", "assistant", "user"]
    assert is_there(second, "tea.md")


def test_a_late_approval_repeated_within_a_day_returns_the_same_outcome(home: Path) -> None:
    clock, model = ManualClock(), ScriptedModel([TEA], "Written.")
    with Harness.open(home, clock=clock, model=model, sandbox=NoSandbox("not here")) as harness:
        harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
        assert harness.run("tea", conversation="c1").status == "waiting"
        clock.advance(3 * CLAIM_S)
        done = allow(harness, "w1", event_id="a1")
        assert done.reply == "Written."
        clock.advance(CLAIM_S / 2)
        assert allow(harness, "w1", event_id="a1") == done
        assert state(harness, "a1") == "done"


def test_a_changed_sandbox_permission_does_not_run_a_pending_call(asking: Scripted) -> None:
    harness, _ = asking([TEA], "Done.")
    harness.run("note", conversation="c1")
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "bypass"}})
    assert harness.run_jobs().failed == 0
    assert not is_there(harness, "tea.md")
    assert allow(harness, "w1").reply == "Done."
    assert is_there(harness, "tea.md")
