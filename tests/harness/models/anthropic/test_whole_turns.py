"""Whole turns with the provider's model, from the home's settings to the files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from harness import Harness
from harness.messages.message import Message, ToolResult
from harness.messages.progress import Progress, TextArrived, ToolEnded
from tests.harness.messages_server import (
    KEY,
    Hold,
    Line,
    MessagesServer,
    Refusal,
    breaks_off,
    says,
    text,
    thinking,
    tool_use,
)

TURN_S_MAX = 60.0


@pytest.fixture
def harness(
    tmp_path: Path, server: MessagesServer, monkeypatch: pytest.MonkeyPatch
) -> Generator[Harness]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    with Harness.open(tmp_path / "home") as harness:
        assert harness.settings.anthropic_base_url == server.url
        yield harness


def stored(harness: Harness, conversation: str) -> list[Message]:
    agent = harness.agents.get(harness.settings.default_agent)
    found = harness.rooms.conversations.find(agent.id, conversation)
    assert found is not None
    return [entry.message for entry in harness.conversations.transcript(found).entries()]


def interrupted(harness: Harness, said: str, *, conversation: str, when: threading.Event) -> None:
    """Say something and press Ctrl-C as soon as `when` has come."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        if when.wait(TURN_S_MAX):
            signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            harness.run(said, conversation=conversation)
    finally:
        presser.join(TURN_S_MAX)


def test_a_line_written_to_memory_is_in_the_prompt_of_the_next_conversation(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(
            thinking("The file first."),
            text("Let me see."),
            tool_use("toolu_1", "read", '{"pa', 'th": "MEMORY', '.md"}'),
        ),
        says(
            tool_use(
                "toolu_2",
                "edit",
                '{"path": "MEMORY.md", "old": "## Facts and decisions", ',
                '"new": "## Facts and decisions\\n- Ada likes tea."}',
            )
        ),
        says(text("Noted", "."), output=3),
    )
    progress: list[Progress] = []
    outcome = harness.run("I like tea.", conversation="one", emit=progress.append)
    assert (outcome.status, outcome.reply) == ("done", "Noted.")
    assert outcome.usage.output == 7 + 7 + 3
    assert outcome.usage.input == 3 * 11
    assert [p.text for p in progress if isinstance(p, TextArrived)] == [
        "Let me see.",
        "Noted",
        ".",
    ]
    assert [p.result.is_error for p in progress if isinstance(p, ToolEnded)] == [False, False]
    notes = harness.workspaces.get("notes")
    assert "- Ada likes tea." in notes.read("MEMORY.md").text
    (change,) = outcome.changes
    newest = notes.log(limit=1)[0]
    assert (change.workspace, change.revision) == ("notes", newest.id)
    assert newest.trailers["Call"] == "toolu_2"
    assert "Ada" not in str(server.requests[0]["system"])

    server.answers(says(text("Tea.")))
    harness.run("What do I like?", conversation="two")
    newest_request = server.requests[-1]
    assert "- Ada likes tea." in newest_request["system"][-1]["text"]
    assert len(newest_request["messages"]) == 1


def test_a_running_turn_resends_its_thinking_and_a_later_turn_only_the_calls(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(thinking("Look."), tool_use("toolu_1", "read", '{"path": "TASKS.md"}')),
        says(thinking("So.", signature="SECOND=="), text("Nothing to do.")),
        says(text("Still nothing.")),
    )
    harness.run("What is to do?", conversation="c")
    harness.run("And now?", conversation="c")
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    within, later = server.requests[1:]
    assert within["messages"][1]["content"][0]["signature"] == "SIGNATURE=="
    kinds = [block["type"] for message in later["messages"] for block in message["content"]]
    assert kinds == ["text", "tool_use", "tool_result", "text", "text"]


def test_the_results_of_all_calls_of_one_message_are_sent_together(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(
            tool_use("toolu_1", "read", '{"path": "MEMORY.md"}'),
            tool_use("toolu_2", "read", '{"path": "nix.md"}'),
            tool_use("toolu_3", "dance", "{}"),
        ),
        says(text("ok")),
    )
    assert harness.run("Look.").status == "done"
    results = server.requests[-1]["messages"][-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["toolu_1", "toolu_2", "toolu_3"]
    assert [result.get("is_error", False) for result in results] == [False, True, True]


@pytest.mark.parametrize("stop", ["max_tokens", "end_turn", "pause_turn"])
def test_an_incomplete_tool_call_is_never_run_and_the_next_turn_succeeds(
    harness: Harness, server: MessagesServer, stop: str
) -> None:
    call = tool_use("toolu_1", "write", '{"path": "half.md", "content": "all of it')
    server.answers(says(text("Writing."), call, stop=stop), says(text("Again.")))
    outcome = harness.run("Write it.", conversation="c")
    assert outcome.status == "cut"
    assert outcome.changes == ()
    assert "half.md" not in harness.workspaces.get("notes").files()
    assert harness.run("Go on.", conversation="c").status == "done"


def test_a_reply_cut_while_thinking_does_not_block_the_conversation(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(
        says(thinking("Hm"), stop="max_tokens"),
        says(thinking("Hm", signature=""), stop="max_tokens"),
        says(text("Here.")),
    )
    assert harness.run("Think.", conversation="c").status == "cut"
    assert harness.run("Think again.", conversation="c").status == "cut"
    assert harness.run("Go on.", conversation="c").reply == "Here."


@pytest.mark.parametrize(
    "faults",
    [
        [Refusal(401, "authentication_error")],
        [Refusal(404, "not_found_error", "model: nix")],
        [says(stop="refusal")],
        [says(text("Half an ans"), stop="model_context_window_exceeded")] * 2,
    ],
    ids=["key", "model", "refusal", "window"],
)
def test_a_turn_after_a_failure_sends_the_earlier_user_message_too(
    harness: Harness, server: MessagesServer, faults: list[Line]
) -> None:
    server.answers(*faults, says(text("Here I am.")))
    failed = harness.run("First.", conversation="c")
    assert failed.status == "failed"
    assert failed.failure is not None
    assert failed.failure.remedy
    assert harness.run("Second.", conversation="c").reply == "Here I am."
    (message,) = server.requests[-1]["messages"]
    assert [block["text"] for block in message["content"]] == ["First.", "Second."]


def test_an_empty_reply_does_not_block_the_conversation(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(says(), says(text(" \n")), says(text("Hello.")))
    assert harness.run("One.", conversation="c").status == "done"
    assert harness.run("Two.", conversation="c").status == "done"
    assert harness.run("Three.", conversation="c").reply == "Hello."


def test_a_turn_cancelled_while_text_streams_does_not_block_the_conversation(
    harness: Harness, server: MessagesServer
) -> None:
    hold = Hold()
    server.answers(breaks_off(text("Once upon"), ending=[hold]))
    interrupted(harness, "Tell me a story.", conversation="c", when=hold.reached)
    assert hold.left.wait(TURN_S_MAX), "the provider goes on talking to nobody"
    assert [message.role for message in stored(harness, "c")] == ["user"]
    server.answers(says(text("The end.")))
    assert harness.run("Shorter.", conversation="c").reply == "The end."


def test_a_turn_cancelled_after_a_tool_ran_keeps_the_tool_result(
    harness: Harness, server: MessagesServer
) -> None:
    hold = Hold()
    call = tool_use("toolu_1", "write", '{"path": "notes/a.md", "content": "kept"}')
    server.answers(says(thinking("Write."), call), breaks_off(ending=[hold]))
    interrupted(harness, "Write it.", conversation="c", when=hold.reached)
    assert harness.workspaces.get("notes").read("notes/a.md").text == "kept"
    last = stored(harness, "c")[-1]
    assert [part.text for part in last.parts if isinstance(part, ToolResult)] == [
        "Written: notes/a.md, 1 line."
    ]
    server.answers(says(text("It is written.")))
    assert harness.run("And?", conversation="c").reply == "It is written."


def test_a_turn_cancelled_during_a_tool_call_does_not_run_the_call(
    harness: Harness, server: MessagesServer
) -> None:
    hold = Hold()
    half = tool_use("toolu_1", "write", '{"path": "half.md", ', '"content": "x"')[:-1]
    server.answers(breaks_off(half, ending=[hold]))
    interrupted(harness, "Write it.", conversation="c", when=hold.reached)
    assert "half.md" not in harness.workspaces.get("notes").files()
    server.answers(says(text("Sorry.")))
    assert harness.run("Go on.", conversation="c").reply == "Sorry."


def test_the_same_event_is_sent_to_the_provider_once(
    harness: Harness, server: MessagesServer
) -> None:
    server.answers(says(text("Once.")))
    first = harness.run("Hello.", conversation="c", event_id="evt-1")
    assert harness.run("Hello.", conversation="c", event_id="evt-1") == first
    assert len(server.requests) == 1
