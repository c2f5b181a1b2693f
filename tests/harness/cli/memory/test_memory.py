"""`harness memory`: facts at a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness
from tests.harness.cli.terminal import Terminal
from workspaces.revision import Author

MODEL = Author("helper", "agent_1", "extract")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    with Harness.open(tmp_path / "home") as harness:
        harness.workspaces.get("notes").write("facts/city.md", "They live in Oslo.\n", by=MODEL)
    return Terminal(tmp_path / "home", {})


def test_facts_are_added_listed_changed_and_deleted(terminal: Terminal) -> None:
    assert "Added tea" in terminal("memory", "add", "tea", "Likes tea.", "--pin").done().out
    assert "Changed tea" in terminal("memory", "add", "tea", "-", stdin=b"Green tea.").done().out
    listed = terminal("memory", "list", "--json").done().json["memories"]
    assert [(row["key"], row["value"], row["pinned"]) for row in listed] == [
        ("tea", "Green tea.", True),
        ("city", "They live in Oslo.", False),
    ]
    terminal("memory", "unpin", "tea").done()
    terminal("memory", "edit", listed[0]["id"], "--importance", "7").done()
    shown = terminal("memory", "list").done().out
    assert "Green tea." in shown
    assert "manual" in shown
    assert len(terminal("memory", "history", "tea", "--json").done().json["revisions"]) == 4
    terminal("memory", "rm", "tea").done()
    terminal("memory", "rm", "tea").refused("not_found")


def test_a_model_s_fact_is_read_only_at_the_terminal_unless_adopted(terminal: Terminal) -> None:
    terminal("memory", "edit", "city", "Bergen").refused("read-only", "read_only")
    edited = terminal("memory", "edit", "city", "Bergen", "--adopt", "--json").done().json
    assert (edited["value"], edited["source"]) == ("Bergen", "manual")


def test_an_agent_has_facts_of_its_own_and_problems_are_named(terminal: Terminal) -> None:
    terminal("memory", "add", "style", "terse", "--agent", "assistant").done()
    rows = terminal("memory", "list", "--agent", "assistant", "--json").done().json["memories"]
    assert [row["scope"] for row in rows] == ["agent"]
    with Harness.open(terminal.home) as harness:
        facts = harness.workspaces.get("notes").root / "facts"
    (facts / "bad.md").write_text("---\nkey: [\n---\nx\n")
    listed = terminal("memory", "list").done()
    assert "facts/bad.md" in listed.stderr
    terminal("memory", "list", "--agent", "assistant", "-w", "notes").refused("--agent")
    terminal("memory", "add", "k", "x" * 2001).refused("over_limit")
