"""`harness forget`: a dry run, no answer without a terminal, a report, and its verification."""

from __future__ import annotations

import json

from tests.harness.cli.terminal import Terminal

SECRET = "the heron nests in Galway"


def test_a_text_is_forgotten_and_its_report_can_be_verified(harness: Terminal) -> None:
    harness("run", "-c", "c1", f"Remember that {SECRET}.").done()
    looked = harness("forget", "--text", SECRET)
    assert looked.code == 1
    assert "Nothing was changed" in looked.stderr
    assert "MEMORY.md" in looked.out
    assert SECRET in harness("cat", "notes", "MEMORY.md").done().out

    done = harness("forget", "--text", "-", "--yes", "--json", stdin=SECRET.encode()).done().json
    assert done["status"] == "done"
    assert SECRET not in json.dumps(done)
    mark = f"[forgotten {done['tombstones'][0]}]"
    assert mark in harness("cat", "notes", "MEMORY.md").done().out

    report = harness.home / "report.json"
    report.write_text(json.dumps(done))
    assert harness("forget", "verify", str(report), stdin=SECRET.encode()).done()
    (harness.home / "left.txt").write_text(SECRET.upper().replace(" ", "\n"))
    found = harness("forget", "verify", done["id"], stdin=SECRET.encode())
    assert (found.code, "left.txt" in found.out) == (1, True)
    assert done["tombstones"][0] in harness("explain", "c1").done().out
