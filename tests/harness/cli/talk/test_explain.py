"""`harness explain`, and `harness prompt` for a conversation or a revision."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.cli.terminal import Terminal


@pytest.fixture
def talked(tmp_path: Path) -> Terminal:
    """A home with a conversation in which something was remembered and asked for."""
    harness = Terminal(tmp_path / "home", {})
    harness("run", "remember that tea is green", "-c", "c1").done()
    harness("run", "What is green?", "-c", "c1").done()
    return harness


def test_explain_lists_the_receipts_of_each_turn(talked: Terminal) -> None:
    plain, as_json, one = talked.all(
        ("explain", "c1"),
        ("explain", "c1", "--json"),
        ("explain", "c1", "--find", "tea is green", "--json"),
    )
    first, second = as_json.done().json["turns"]
    assert [step["receipt"] for step in first["steps"]] == [1, 2, 3]
    assert [step["reason"] for step in first["steps"]] == ["first"] * 3
    (before, came) = [entrance for turn in (first, second) for entrance in turn["entered"]]
    assert (before["source"], came["source"]) == ("memory/notes", "memory/notes")
    assert came["before"] == before["revision"]
    assert [revision["subject"] for revision in came["revisions"]] == [
        "MEMORY.md: +1 −0 · tea is green"
    ]
    shown = plain.done().out
    assert len(re.findall(r"^turn_", shown, re.MULTILINE)) == 2
    assert "snapshot 1 (first), 1 change since" in shown
    assert re.search(r"entered memory/notes [0-9a-f]{12}\n    [0-9a-f]{12} .*tea is green", shown)
    (sighting,) = one.done().json["sightings"]
    assert (sighting["turn"], sighting["shown"]) == (first["turn"], True)
    assert sighting["revision"] == came["revision"]


def test_explain_text_shows_the_full_text_of_a_turns_prompt(talked: Terminal) -> None:
    turn = talked("explain", "c1", "--json").done().json["turns"][1]["turn"]
    words, unknown, nobody = talked.all(
        ("explain", "c1", turn[:14], "--text"),
        ("explain", "c1", "turn_nix"),
        ("explain", "nix"),
    )
    assert '<memory workspace="notes" file="MEMORY.md">' in words.done().out
    assert "+ - tea is green" in words.out
    assert (unknown.code, nobody.code) == (1, 1)
    assert "not_found" in unknown.stderr


def test_prompt_of_a_conversation_shows_the_prompt_of_its_next_turn(talked: Terminal) -> None:
    going_on, anew, unused = talked.all(
        ("prompt", "--agent", "assistant", "--conversation", "c1", "--json"),
        ("prompt", "--agent", "assistant", "--json"),
        ("prompt", "-c", "not used yet", "--json"),
    )
    *parts, change = going_on.done().json
    assert change["source"] == "change"
    assert change["entry"] == 5
    assert "+ - tea is green" in change["text"]
    assert "tea is green" not in "".join(part["text"] for part in parts)
    assert anew.done().json == unused.done().json
    assert "- tea is green" in "".join(part["text"] for part in anew.json)


def test_prompt_shows_the_memory_of_a_workspace_at_a_revision(talked: Terminal) -> None:
    newest = talked("log", "notes", "MEMORY.md", "--json").done().json
    then, now, wrong, alone = talked.all(
        ("prompt", "notes", "--revision", newest[-1]["revision"]),
        ("prompt", "notes"),
        ("prompt", "notes", "--revision", "beef" * 10),
        ("prompt", "--revision", newest[0]["revision"]),
    )
    assert "tea is green" not in then.done().out
    assert "tea is green" in now.done().out
    assert (wrong.code, alone.code) == (1, 1)
