"""`harness compact`, as a process, with the demo model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A home with two conversations: one of three turns, one of a single turn."""
    place: Path = tmp_path_factory.mktemp("compact")
    terminal = Terminal(place / "home", {})
    for said in ("remember that tea is green", "what about [/]tea?", "and coffee?"):
        terminal("run", said, "-c", "long").done()
    terminal("run", "hello", "-c", "short").done()
    return terminal


def test_a_compact_dry_run_shows_the_planned_summary_without_a_model_call(
    harness: Terminal,
) -> None:
    told = harness("compact", "long", "--dry-run").done().out
    assert told.startswith("would be compacted: long: entries up to ")
    would = harness("compact", "long", "--dry-run", "--json").done().json
    assert would["would"] == {"kind": "summary", "covers": int(told.split()[7].rstrip(";"))}
    nothing = harness("compact", "short", "--dry-run").done()
    assert nothing.out == ""
    assert "no messages before the newest turn" in nothing.stderr
    prompt = harness("prompt", "-c", "long").done().out
    assert "<summary>" not in prompt


def test_a_conversation_is_compacted_once_and_shows_its_summary(harness: Terminal) -> None:
    told = harness("compact", "long").done().out
    assert told.startswith("compacted: long: entries up to ")
    last = int(told.split()[5])  # how many tools the first turn used depends on the sandbox
    shown = harness("conversation", "show", "long").done().out
    assert f"summary of the entries up to {last}" in shown
    assert "- remember that tea is green" in shown
    prompt = harness("prompt", "-c", "long").done().out
    assert "<summary>\nThe user has said:\n- remember that tea is green\n</summary>" in prompt
    again = harness("compact", "long", "--json").done().json
    assert (again["compacted"], again["windowFrom"]) == (True, last + 3)
    nothing = harness("compact", "long").done()
    assert nothing.out == ""
    assert "nothing before the newest turn" in nothing.stderr
    answer = harness("run", "hello again", "-c", "long", "--json").done().json
    assert answer["outcome"] == "done"


def test_compact_reports_when_there_is_nothing_to_summarise(harness: Terminal) -> None:
    told = harness("compact", "short", "--json").done().json
    assert told["compacted"] is False
    assert [one["kind"] for one in told["context"]] == ["turn_too_long"]
    harness("compact", "nowhere").refused("not_found")
