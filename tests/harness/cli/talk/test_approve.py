"""`harness approve`: tool calls that wait for an approval, at the terminal or from another terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.cli.screen import Screen
from tests.harness.cli.terminal import Terminal


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
    assert "Waiting for approval: " in waiting.stderr
    assert "MEMORY.md in notes" in waiting.stderr
    assert "harness approve conv_" in waiting.stderr
    assert "green" not in memory(harness)
    (line,) = harness("status", "--json").done().json["conversations"]
    assert (line["subject"], line["tool"], line["waitsFor"]) == ("c1", "edit", "approval")
    approved = harness("approve", "c1").done()
    assert approved.out == "I have written to MEMORY.md: tea is green.\n"
    assert "green" in memory(harness)
    harness("approve", "c1").refused("not_found", "call that waits")
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
    harness("approve", "c1").done()
    assert "green" in memory(harness)
