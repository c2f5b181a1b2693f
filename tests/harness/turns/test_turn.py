from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harness import Harness
from harness.context.repair import INTERRUPTED
from harness.messages.message import Message, Text, ToolCall, ToolResult
from harness.messages.model_request import ModelFailure, ModelRequest
from harness.messages.progress import Progress, TextArrived, ToolEnded, ToolStarted
from harness.models.scripted import ScriptedModel
from harness.transcripts.transcript import Entry
from workspaces.coordination.lease import Leases
from workspaces.errors import Busy, Conflict, Refused
from workspaces.ids import ConversationId, TurnId, lease_key
from workspaces.timestamp import stamp_of

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

READ = ToolCall("t1", "read", {"path": "MEMORY.md"})


def stored(harness: Harness, conversation_id: ConversationId) -> list[str]:
    transcript = harness.conversations.transcript(harness.conversations.get(conversation_id))
    return [entry.message.role for entry in transcript.entries()]


def test_a_turn_ends_when_the_model_calls_no_more_tools(scripted: Scripted) -> None:
    harness, model = scripted([Text("Let me look."), READ], "Here it is.")
    outcome = harness.run("What do you know?")
    assert (outcome.status, outcome.reply) == ("done", "Here it is.")
    assert stored(harness, outcome.conversation_id) == ["user", "assistant", "user", "assistant"]
    result = model.requests[1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert "# Memory" in result.text


def test_every_message_is_stored_before_the_next_model_call(scripted: Scripted) -> None:
    seen: list[int] = []
    opened: list[Harness] = []

    def look(request: ModelRequest) -> str:
        key = opened[0].rooms.conversations.find(opened[0].agents.get("assistant").id, "c1")
        assert key is not None
        seen.append(len(stored(opened[0], key.id)))
        assert len(request.messages) == seen[-1]
        return "done"

    harness, _ = scripted([READ], [READ], look)
    opened.append(harness)
    harness.run("go", conversation="c1")
    assert seen == [5]


def test_a_tool_input_with_an_infinite_number_is_refused_before_storage(scripted: Scripted) -> None:
    """`1e999` in what a provider sends is read as infinite."""
    harness, _ = scripted([ToolCall("t1", "read", {"path": "MEMORY.md", "limit": float("inf")})])
    with pytest.raises(Refused, match="cannot be stored as JSON"):
        harness.run("go")
    assert harness.rooms.usage.report().total.asked == 1  # what could not be stored was paid for


def test_a_conversation_continues_from_its_earlier_messages(scripted: Scripted) -> None:
    harness, model = scripted("one", "two")
    harness.run("first", conversation="c1")
    harness.run("second", conversation="c1")
    assert [message.text for message in model.requests[1].messages] == ["first", "one", "second"]


def test_a_conversation_does_not_see_messages_of_another_conversation(scripted: Scripted) -> None:
    harness, model = scripted("one", "two")
    harness.run("first", conversation="c1")
    harness.run("second", conversation="c2")
    assert [message.text for message in model.requests[1].messages] == ["second"]


def test_progress_events_arrive_in_order_during_the_turn(scripted: Scripted) -> None:
    harness, _ = scripted([Text("Looking."), READ], "Done.")
    told: list[Progress] = []
    harness.run("go", emit=told.append)
    kinds = [type(progress) for progress in told]
    assert kinds == [TextArrived, ToolStarted, ToolEnded, TextArrived]


def test_a_model_that_never_stops_reaches_the_step_limit(scripted: Scripted) -> None:
    harness, model = scripted(
        *[[ToolCall(f"t{n}", "read", {"path": "MEMORY.md"})] for n in range(9)]
    )
    harness.agents.patch("assistant", {"config": {"limits": {"steps": 3}}})
    outcome = harness.run("go")
    assert (outcome.status, len(model.requests)) == ("out_of_steps", 3)


def test_a_model_failure_is_an_outcome_and_the_conversation_continues(scripted: Scripted) -> None:
    failure = ModelFailure("unreachable", "no network", "check it")
    harness, model = scripted(failure, "back again")
    outcome = harness.run("hello", conversation="c1")
    assert (outcome.status, outcome.failure) == ("failed", failure)
    assert harness.run("and now?", conversation="c1").reply == "back again"
    (message,) = model.requests[1].messages
    assert message.text == "hello\n\nand now?"


def test_a_tool_call_without_a_result_is_shown_to_the_model_as_interrupted(
    scripted: Scripted,
) -> None:
    def interrupt(request: ModelRequest) -> str:
        raise KeyboardInterrupt

    harness, model = scripted([READ], interrupt, "going on")
    with pytest.raises(KeyboardInterrupt):
        harness.run("go", conversation="c1")
    harness.run("again", conversation="c1")
    parts = model.requests[-1].messages[-1].parts
    assert parts[-1] == Text("again")
    harness_2, model_2 = scripted("ok")
    conversation = harness.conversation("c1")
    transcript = harness.conversations.transcript(conversation)
    lost = Message("assistant", (ToolCall("t9", "write", {}),))
    at = stamp_of(harness.rooms.clock.now())
    with harness.rooms.dispatcher.leases.held(conversation.lease_key) as lease:
        number = transcript.window().next_number
        transcript.append(Entry(number, at, TurnId("t"), lost), lease)
    harness_2.run("what happened?", conversation="c1")
    result = model_2.requests[0].messages[-1].parts[0]
    assert result == ToolResult("t9", INTERRUPTED, is_error=True)


def test_an_unknown_tool_returns_an_error_with_the_nearest_tool_name(scripted: Scripted) -> None:
    harness, model = scripted([ToolCall("t1", "raed", {})], "sorry")
    harness.run("go")
    result = model.requests[1].messages[-1].parts[0]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "'read'" in result.text


def test_an_event_is_processed_once(scripted: Scripted) -> None:
    harness, model = scripted("once")
    first = harness.run("hello", conversation="c1", event_id="e1")
    again = harness.run("hello", conversation="c1", event_id="e1")
    assert again == first
    assert len(model.requests) == 1
    assert len(stored(harness, first.conversation_id)) == 2


def test_the_same_event_id_with_another_text_is_refused(scripted: Scripted) -> None:
    harness, _ = scripted("once")
    harness.run("hello", conversation="c1", event_id="e1")
    with pytest.raises(Conflict):
        harness.run("goodbye", conversation="c1", event_id="e1")


def test_a_busy_conversation_refuses_the_event_and_accepts_the_same_event_later(
    scripted: Scripted,
) -> None:
    harness, _ = scripted("hello")
    harness.agents.patch("assistant", {"config": {"onBusy": "reject"}})
    agent = harness.agents.get("assistant")
    key = f"acct:{harness.rooms.principal.account_id}:agent:{agent.id}:api:c1"
    other = Leases(harness.rooms.records, harness.rooms.clock)
    held = other.acquire(lease_key(key))
    with pytest.raises(Busy):
        harness.run("hi", conversation="c1", event_id="e1")
    other.release(held)
    assert harness.run("hi", conversation="c1", event_id="e1").reply == "hello"


@pytest.mark.parametrize(
    ("text", "conversation", "field"),
    [
        ("", "c1", "content"),
        ("  \n", "c1", "content"),
        ("hi", "acct:x", "conversationKey"),
        ("hi", "run:1", "conversationKey"),
        ("hi", "a\nb", "conversationKey"),
        ("hi", "x" * 201, "conversationKey"),
    ],
)
def test_an_invalid_event_is_refused_before_the_model_call(
    scripted: Scripted, text: str, conversation: str, field: str
) -> None:
    harness, model = scripted("never")
    with pytest.raises(Refused) as caught:
        harness.run(text, conversation=conversation)
    assert caught.value.field == field
    assert model.requests == []


def test_a_message_larger_than_a_record_is_stored_whole(scripted: Scripted) -> None:
    harness, model = scripted("read it", "still there")
    long = "ä" * 300_000
    harness.run(long, conversation="c1")
    harness.run("and?", conversation="c1")
    assert model.requests[1].messages[0].text == long


def test_a_file_read_in_an_earlier_turn_may_be_written_in_a_later_turn(scripted: Scripted) -> None:
    read = ToolCall("t1", "read", {"path": "TASKS.md"})
    write = ToolCall("t2", "write", {"path": "TASKS.md", "content": "# Tasks\n\n- [ ] one\n"})
    harness, _ = scripted([read], "read", [write], "written")
    harness.run("read it", conversation="c1")
    harness.run("write it", conversation="c1")
    assert harness.workspaces.get("notes").read("TASKS.md").text.endswith("- [ ] one\n")


def test_a_write_is_merged_with_manual_edits_since_the_read_in_an_earlier_turn(
    scripted: Scripted,
) -> None:
    read = ToolCall("t1", "read", {"path": "a.md"})
    write = ToolCall("t2", "write", {"path": "a.md", "content": "one\ntwo\nby the agent\n"})
    harness, _ = scripted([read], "read", [write], "written")
    notes = harness.workspaces.get("notes")
    (notes.root / "a.md").write_text("one\ntwo\n")
    harness.run("read it", conversation="c1")
    (notes.root / "a.md").write_text("by hand\none\ntwo\n")
    harness.run("write it", conversation="c1")
    assert notes.read("a.md").text == "by hand\none\ntwo\nby the agent\n"


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("t1", "read", {"path": "\ud800"}),
        ToolCall("t1", "read", {"\udfff": 1}),
        ToolCall("t1", "read", {"path": {"a": [None]}}),
        ToolCall("t1", "read", {"path": "a\0b"}),
        ToolCall("t1", "write", {"path": "a.md", "content": "\ud83d"}),
        ToolCall("t1", "glob", {"pattern": "[" * 5_000}),
        ToolCall("t1", "grep", {"pattern": "(((((", "path": "../.."}),
        ToolCall("t1", "", {}),
        ToolCall("t1", "re\nad", {}),
        ToolCall("", "read", {"path": "MEMORY.md"}),
        ToolCall("t1", "read", {"path": "x" * 100_000}),
        ToolCall("t1", "read_result", {"id": "../../state.db"}),
        ToolCall("t1", "read", {"path": "MEMORY.md", "offset": 10**30}),
        ToolCall("t1", "read", {"INVALID_JSON": '{"path": '}),
    ],
    ids=lambda call: repr(call.input)[:30],
)
def test_a_malformed_tool_call_returns_an_error_result_and_the_transcript_stays_valid(
    scripted: Scripted, call: ToolCall
) -> None:
    harness, model = scripted([Text("So. \udc00"), call], "I see.", "And on.")
    outcome = harness.run("go", conversation="c1")
    assert (outcome.status, outcome.reply) == ("done", "I see.")
    assert stored(harness, outcome.conversation_id) == ["user", "assistant", "user", "assistant"]
    assert harness.run("on", conversation="c1").reply == "And on."
    for request in model.requests:
        json.dumps(request.as_json()).encode()
