"""`harness forbid`."""

from __future__ import annotations

from pathlib import Path

from tests.harness.cli.terminal import Terminal


def test_a_text_is_forbidden_held_back_and_lifted(born: Terminal) -> None:
    made = born("forbid", "add", "--text", "-", "--json", stdin=b"The code is 4711\n").done().json
    rule = made["id"]
    assert rule.startswith("f_") and made["words"] == 4
    born("write", "notes", "a.md", stdin=b"the CODE is: 4711\n").refused("forbidden text in line 1")
    folder = Path(born("path", "notes").done().out.strip())
    (folder / "a.md").write_text("x\nthe code is\n4711\n")
    assert f"'a.md' holds a forbidden text in line 2 ({rule})" in born("status").done().out
    assert "take the text out of the file" in born("status").done().out
    born("cat", "notes", "a.md").refused("there is no file")
    assert rule in born("forbid", "list").done().out
    born("forbid", "allow", rule, "notes", "a.md").done()
    born("write", "notes", "b.md", stdin=b"the code is 4711\n").refused("forbidden text")
    born("forbid", "lift", rule).done()
    assert born("cat", "notes", "a.md").done().out == "x\nthe code is\n4711\n"
    assert born("forbid", "list", "--json").done().json == {"forbidden": []}


def test_a_rule_that_cannot_be_made_is_refused(born: Terminal) -> None:
    born("forbid", "add").refused("one of")
    born("forbid", "add", "--text", "tea").refused("--forbid-short")
    born("forbid", "add", "--match", "a*").refused("empty text")
    born("forbid", "lift", "f_00000000").refused("forbid list")
