"""`harness approve`: tool calls that wait for an approval, at the terminal or from another terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.cli.screen import Screen
from tests.harness.cli.terminal import Terminal
from tests.harness.messages_server import KEY, MessagesServer, says, text, tool_use


@pytest.fixture
def harness(tmp_path: Path) -> Terminal:
    """A home whose commands and writes are asked for."""
    harness = Terminal(tmp_path / "home", {})
    harness("sandbox", "set", "default", "--permission", "ask").done()
    return harness


TEA = ("run", "remember that tea is green", "-c", "c1")


def memory(harness: Terminal) -> str:
    return harness("cat", "notes", "MEMORY.md").done().out


def test_without_a_terminal_a_waiting_turn_names_the_approve_command(harness: Terminal) -> None:
    waiting = harness(*TEA)
    assert (waiting.code, waiting.out) == (1, "")
    assert "Waiting for approval: edit in notes (toolu_" in waiting.stderr
    assert "  path: MEMORY.md\n" in waiting.stderr
    assert "│ - tea is green\n" in waiting.stderr, "the whole call"
    assert "harness approve conv_" in waiting.stderr
    assert "green" not in memory(harness)
    assert "│ - tea is green\n" in harness("status").done().out
    (line,) = harness("status", "--json").done().json["conversations"]
    assert (line["subject"], line["tool"], line["waitsFor"]) == ("c1", "edit", "approval")
    approved = harness("approve", "c1", "--yes").done()
    assert approved.out == "I have written to MEMORY.md: tea is green.\n"
    assert "green" in memory(harness)
    harness("approve", "c1").refused("not_found", "no call waits in this conversation")
    shown = harness("conversation", "show", "c1").done().out
    assert "  allowed  " in shown


def test_a_pending_call_is_denied_by_id_with_a_reason(harness: Terminal) -> None:
    waiting = harness(*TEA, "--json")
    assert (waiting.code, waiting.json["outcome"]) == (1, "waiting")
    (call,) = waiting.json["pending"]
    assert call["waitsFor"] == "approval"
    harness("approve", "c1", "nothing").refused("not_found")
    denied = harness(
        "approve", "c1", call["callId"], "--deny", "--reason", "not now", "--json"
    ).done()
    assert denied.json["outcome"] == "done"
    assert "green" not in memory(harness)
    shown = harness("conversation", "show", "c1").done().out
    assert "does not allow this call: not now" in shown


@pytest.mark.parametrize(("answer", "is_noted"), [("y", True), ("n", False)])
def test_a_person_at_the_terminal_is_asked_for_approval(
    harness: Terminal, answer: str, is_noted: bool
) -> None:
    screen = Screen(harness, *TEA)
    screen.wait_for("[y]es, [n]o ›")
    assert "tea is green" in screen.shown, "one sees what one allows"
    screen.type("perhaps\n")
    screen.wait_for("[y]es, [n]o ›")
    screen.type(f"{answer}\n")
    assert screen.close() == 0
    assert ("green" in memory(harness)) == is_noted


def test_an_unanswered_approval_stays_pending(harness: Terminal) -> None:
    screen = Screen(harness, "chat", "-c", "c1")
    screen.wait_for("you ›")
    screen.type("remember that tea is green\n")
    screen.wait_for("[y]es, [n]o ›")
    screen.type("\x04")
    screen.wait_for("harness approve")
    screen.wait_for("you ›")
    screen.type("\x04")
    assert screen.close() == 0
    harness("approve", "c1", "--yes").done()
    assert "green" in memory(harness)


def test_without_a_terminal_approve_shows_the_call_and_approves_nothing_without_yes(
    harness: Terminal,
) -> None:
    harness(*TEA)
    unasked = harness("approve", "c1").refused("Nothing was approved", "--yes", "--show")
    assert "│ - tea is green\n" in unasked.stderr
    told = harness("approve", "c1", "--json")
    assert (told.code, told.json["error"]["code"]) == (1, "invalid")
    assert harness("approve", "c1", "--yes", "--deny").code == 2
    assert "green" not in memory(harness)
    shown = harness("approve", "c1", "--show").done().out
    assert shown.startswith("edit in notes (toolu_")
    assert "    │ - tea is green\n" in shown
    (call,) = harness("approve", "c1", "--show", "--json").done().json["pending"]
    assert call["input"]["new"].endswith("- tea is green")
    harness("approve", "c1", "nothing", "--show").refused("not_found")


def test_approve_asks_the_person_at_the_terminal_and_no_answer_leaves_the_call_pending(
    harness: Terminal,
) -> None:
    harness(*TEA)
    screen = Screen(harness, "approve", "c1")
    screen.wait_for("[y]es, [n]o ›")
    assert "│ - tea is green" in screen.shown
    screen.type("\x04")
    assert screen.close() == 1
    assert harness("status", "--json").done().json["conversations"]
    screen = Screen(harness, "approve", "c1")
    screen.wait_for("[y]es, [n]o ›")
    screen.type("y\n")
    assert screen.close() == 0
    assert "green" in memory(harness)


def test_a_long_call_is_cut_and_shown_whole_on_request(
    tmp_path: Path, server: MessagesServer
) -> None:
    variables = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
    asking = Terminal(tmp_path / "home", variables)
    asking("sandbox", "set", "default", "--permission", "ask").done()
    lines = "".join(f"- item {number}\n" for number in range(1_000))
    arguments = json.dumps({"path": "a.md", "content": f"{lines}\x1b[2J- the end\n"})
    server.answers(says(tool_use("toolu_1", "write", arguments)), says(text("Done.")))
    waiting = asking("run", "Write.", "-c", "c1")
    assert "- item 30\n" in waiting.stderr
    assert "the end" not in waiting.stderr
    assert "more characters: `harness approve conv_" in waiting.stderr
    assert " toolu_1 --show`)" in waiting.stderr
    assert "characters left out here" in asking("status").done().out
    screen = Screen(asking, "approve", "c1")
    screen.wait_for("[y]es, [n]o, [s]how all ›")
    screen.type("s\n")
    screen.wait_for("[y]es, [n]o ›")
    assert "│ \\x1b[2J- the end" in screen.shown
    screen.type("n\n")
    assert screen.close() == 0
