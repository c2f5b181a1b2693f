"""Pruning: old tool results are shortened or left out of requests and stay whole in the transcript."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Harness
from harness.messages.message import ToolCall, ToolResult
from harness.messages.model_request import ModelRequest
from harness.models.scripted import ScriptedModel
from harness.sandboxes.none import NoSandbox
from harness.transcripts.transcript import TranscriptWindow
from tests.harness.prompts.stored_request import as_asked
from workspaces.errors import Refused
from workspaces.revision import Author

Scripted = Callable[..., tuple[Harness, ScriptedModel]]

PERSON = Author("person", "usr_1", "api")
READ = ToolCall("t1", "read", {"path": "long.md"})
LONG = "\n".join(f"line {number:03} of a long file" for number in range(200)) + "\n"


def results(request: ModelRequest) -> list[str]:
    parts = (part for message in request.messages for part in message.parts)
    return [part.text for part in parts if isinstance(part, ToolResult)]


def configure(harness: Harness, **session: object) -> None:
    harness.agents.patch("assistant", {"config": {"session": session}})


def test_a_result_of_a_finished_turn_is_shortened_in_requests_and_whole_in_read_result(
    scripted: Scripted,
) -> None:
    again = ToolCall("t2", "read_result", {"id": "t1"})
    harness, model = scripted([READ], "read", [again], "read again")
    harness.workspaces.get("notes").write("long.md", LONG, by=PERSON)
    harness.run("read it", conversation="c1")
    (whole,) = results(model.requests[1])
    assert len(whole) > 5_000
    harness.run("and again", conversation="c1")
    (short,) = results(model.requests[2])
    assert len(short) == 400
    assert 'read_result with id "t1" shows the whole' in short
    assert results(model.requests[3]) == [short, whole]
    transcript = harness.conversations.transcript(harness.conversation("c1"))
    assert transcript.result("t1") == whole
    assert transcript.result("t9") is None


def test_without_pruning_a_result_stays_whole(scripted: Scripted) -> None:
    harness, model = scripted([READ], "read", "well")
    harness.workspaces.get("notes").write("long.md", LONG, by=PERSON)
    configure(harness, pruning={"enabled": False})
    harness.run("read it", conversation="c1")
    harness.run("and now?", conversation="c1")
    assert results(model.requests[2]) == results(model.requests[1])


def test_a_result_before_a_reset_cannot_be_read(scripted: Scripted) -> None:
    again = ToolCall("t2", "read_result", {"id": "t1"})
    harness, model = scripted([READ], "read", [again], "gone")
    harness.run("read it", conversation="c1")
    harness.conversations.reset(harness.conversation("c1"))
    harness.run("and again", conversation="c1")
    assert "no result" in results(model.requests[-1])[-1]


def test_another_process_prunes_the_same_and_receipts_reproduce_the_requests(
    scripted: Scripted, home: Path
) -> None:
    harness, model = scripted(
        *([ToolCall(f"t{n}", "read", {"path": "long.md"})] for n in range(3)), "ok"
    )
    harness.workspaces.get("notes").write("long.md", LONG, by=PERSON)
    harness.run("read it", conversation="c1")
    model.script("ok")
    expected = harness.preview("assistant", conversation="c1", message="and now?").request
    other = ScriptedModel("ok")
    with Harness.open(home, model=other, sandbox=NoSandbox("not in this test")) as second:
        second.run("and now?", conversation="c1")
    assert other.requests[0].messages == expected.messages
    configure(harness, pruning={"turns": 0})
    harness.run("and then?", conversation="c1")
    conversation = harness.conversation("c1")
    showing = harness.conversations.prompt_log(conversation)
    transcript = harness.conversations.transcript(conversation)
    receipts = showing.receipts()
    asked = [*model.requests[:4], other.requests[0], model.requests[-1]]
    for receipt, request in zip(receipts, asked, strict=True):
        entries = tuple(transcript.entries(receipt.first, receipt.last))
        said = TranscriptWindow(transcript.session(), entries).said
        assert as_asked(receipt, showing.as_shown(receipt), said) == request
    assert [receipt.pruning.turns for receipt in receipts if receipt.pruning] == [10] * 5 + [0]


def test_old_tool_traffic_is_left_out_from_the_next_snapshot_on_in_every_process(
    scripted: Scripted, home: Path
) -> None:
    harness, model = scripted([READ], "read", "one", "two", "three")
    harness.workspaces.get("notes").write("long.md", LONG, by=PERSON)
    configure(harness, pruning={"turns": 1})
    for said in ("read it", "1", "2"):
        harness.run(said, conversation="c1")
    assert [len(results(request)) for request in model.requests] == [0, 1, 1, 1]
    harness.agents.patch("assistant", {"config": {"system": "Be brief."}})
    other = ScriptedModel("three", "four")
    with Harness.open(home, model=other, sandbox=NoSandbox("not in this test")) as second:
        second.run("3", conversation="c1")
        preview = second.preview("assistant", conversation="c1", message="4").request
        second.run("4", conversation="c1")
    assert [results(request) for request in other.requests] == [[], []]
    assert other.requests[1].messages == preview.messages
    assert other.requests[1].messages[:-2] == other.requests[0].messages
    conversation = harness.conversation("c1")
    transcript = harness.conversations.transcript(conversation)
    assert transcript.result("t1") is not None
    showing = harness.conversations.prompt_log(conversation)
    asked = [*model.requests, *other.requests]
    for receipt, request in zip(showing.receipts(), asked, strict=True):
        entries = tuple(transcript.entries(receipt.first, receipt.last))
        said_then = TranscriptWindow(transcript.session(), entries).said
        assert as_asked(receipt, showing.as_shown(receipt), said_then) == request


@pytest.mark.parametrize(
    ("pruning", "field"),
    [
        ({"enabled": "yes"}, "config.session.pruning.enabled"),
        ({"turns": -1}, "config.session.pruning.turns"),
        ({"turns": 1.5}, "config.session.pruning.turns"),
        ({"turn": 1}, "config.session.pruning.turn"),
    ],
)
def test_an_invalid_pruning_setting_is_refused_by_its_name(
    scripted: Scripted, pruning: object, field: str
) -> None:
    harness, _ = scripted()
    with pytest.raises(Refused) as caught:
        configure(harness, pruning=pruning)
    assert caught.value.field == field


@pytest.mark.parametrize("length", [0, 500_001, 1.5, "x", True, None])
def test_an_invalid_context_length_is_refused_by_its_name(
    scripted: Scripted, length: object
) -> None:
    harness, _ = scripted()
    with pytest.raises(Refused) as caught:
        harness.agents.add(
            {"name": "a", "config": {"session": {"compaction": {"maxContextLength": length}}}}
        )
    assert caught.value.field == "config.session.compaction.maxContextLength"


@pytest.mark.parametrize("length", [1, 500_000])
def test_the_shortest_and_the_longest_context_length_are_accepted(
    scripted: Scripted, length: int
) -> None:
    harness, _ = scripted("ok")
    configure(harness, compaction={"enabled": True, "maxContextLength": length})
    outcome = harness.run("hello", conversation="c1")
    assert outcome.reply == "ok"
    assert [one.kind for one in outcome.remarks] == (["system_too_long"] if length == 1 else [])


def test_memory_takes_at_most_two_fifths_of_the_context(scripted: Scripted) -> None:
    harness, model = scripted("ok")
    facts = "".join(f"- fact {number:03} of many that are remembered\n" for number in range(100))
    harness.workspaces.get("notes").write("MEMORY.md", facts, by=PERSON)
    configure(harness, compaction={"maxContextLength": 2_500})
    harness.run("hello")
    shown = "".join(model.requests[0].system)
    assert 800 < sum(len(line) for line in facts.splitlines() if line in shown) <= 1_000
