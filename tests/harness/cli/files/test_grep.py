"""`harness grep`."""

from __future__ import annotations

from pathlib import Path

from tests.harness.cli.terminal import Terminal


def test_grep_prints_matching_lines_with_their_locations(tmp_path: Path) -> None:
    harness = Terminal(tmp_path / "home", {})
    memory = b"# Memory\n\n- Tea is green\n- [x] tea\n"
    harness("write", "notes", "MEMORY.md", stdin=memory).done()
    harness("write", "notes", "data.bin", stdin=b"\0 tea").done()
    exact, folded, fixed, below, nowhere, before, broken, missing = harness.all(
        ("grep", "notes", "tea"),
        ("grep", "notes", "^- t", "-i", "--json"),
        ("grep", "notes", "[x] tea", "-F"),
        ("grep", "notes", "Tea", "notes/"),
        ("grep", "notes", "nowhere", "--json"),
        ("grep", "notes", "Tea", "-r", harness("log", "notes", "--json").json[-1]["revision"]),
        ("grep", "notes", "("),
        ("grep", "notes", "x", "nothing.md"),
    )
    assert exact.done().out == fixed.done().out == "MEMORY.md:4:- [x] tea\n"
    assert folded.done().json == [
        {"path": "MEMORY.md", "line_number": 3, "content": "- Tea is green"}
    ]
    for ended in (below, before):
        assert (ended.code, ended.out, ended.stderr) == (1, "", "")
    assert (nowhere.code, nowhere.json) == (1, [])
    broken.refused("not a regular expression")
    missing.refused("nothing.md")
