"""`harness import` of a JSON export of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from tests.harness.cli.terminal import Terminal
from workspaces.revision import Author

MODEL = Author("helper", "agent_1", "extract")
ROWS = [
    {"key": "city", "value": "They live in Oslo.", "source": "auto"},
    {"key": "tea", "value": "Green tea.", "pinned": True, "importance": 80, "id": "mem_x"},
    {"key": "Tea", "value": "Black tea."},
]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"success": True, "data": ROWS}))
    return file


def listed(harness: Terminal, *more: str) -> dict[str, tuple[Any, ...]]:
    rows = harness("memory", "list", "--json", *more).done().json["memories"]
    return {
        row["key"]: (row["value"], row["source"], row["pinned"], row["importance"]) for row in rows
    }


def test_rows_become_facts_of_a_person_in_one_revision(harness: Terminal, export: Path) -> None:
    with Harness.open(harness.home) as home:
        home.workspaces.get("notes").write("facts/city.md", "They live in Oslo.\n", by=MODEL)
    before = listed(harness)
    dry = harness("import", str(export), "--dry-run").done().out
    assert "new     tea" in dry
    assert "changed city" in dry
    assert "nothing was changed" in dry
    assert listed(harness) == before
    assert "1 changed, 2 new" in harness("import", str(export)).done().out
    assert listed(harness) == {
        "tea": ("Green tea.", "manual", True, 80),
        "Tea": ("Black tea.", "manual", False, 0),
        "city": ("They live in Oslo.", "manual", False, 0),
    }
    subjects = [one["subject"] for one in harness("log", "notes", "--json", "-n", "2").json]
    assert any(one.startswith("imported from rows.json · 2 files") for one in subjects)
    again = harness("import", str(export), "--json").done().json
    assert {row["fate"] for row in again["memories"]} == {"same"}


def test_rows_of_a_model_keep_a_person_s_facts(harness: Terminal, export: Path) -> None:
    harness("memory", "add", "tea", "No tea.").done()
    shown = harness("import", str(export), "--as", "auto", "--json").done().json["memories"]
    assert [row["fate"] for row in shown] == ["new", "kept", "new"]
    assert listed(harness) == {
        "tea": ("No tea.", "manual", False, 0),
        "Tea": ("Black tea.", "auto", False, 0),
        "city": ("They live in Oslo.", "auto", False, 0),
    }
    harness("memory", "rm", "tea").done()
    harness("import", str(export), "--as", "auto").done()
    assert listed(harness)["tea"] == ("Green tea.", "auto", True, 80)


def test_one_refused_row_refuses_all_and_is_named(harness: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(
        json.dumps([*ROWS, {"key": "x", "value": " "}, {"key": "y", "value": "x" * 3000}])
    )
    harness("import", str(file)).refused("2 of 5", "row 4", "row 5", "nothing was changed")
    assert listed(harness) == {}
    (tmp_path / "notes.txt").write_text("no rows\n")
    harness("import", str(tmp_path / "notes.txt"), "--as", "manual").refused("notes.txt")
    harness("import", str(tmp_path / "none.json"), "--as", "auto").refused("not_found")
    harness("import", str(tmp_path), "--as", "files", "--agent", "assistant").refused("--agent")


def test_rows_become_facts_of_an_agent_and_a_list_can_be_imported_again(
    harness: Terminal, export: Path, tmp_path: Path
) -> None:
    assert "3 new" in harness("import", str(export), "--agent", "assistant", "--dry-run").done().out
    harness("import", str(export), "--agent", "assistant").done()
    assert len(listed(harness, "--agent", "assistant")) == 3
    copy = tmp_path / "copy.json"
    copy.write_text(harness("memory", "list", "--agent", "assistant", "--json").out)
    harness("import", str(copy)).done()
    assert listed(harness) == listed(harness, "--agent", "assistant")
