"""`harness log`, as programs read it."""

from __future__ import annotations

import re

from tests.harness.cli.terminal import Terminal

REVISION = re.compile(r"[0-9a-f]{40}")


def test_log_tells_revisions_as_json_newest_first(harness: Terminal) -> None:
    harness("run", "remember that tea is green", "-c", "c1").done()
    harness("write", "notes", "notes/a.md", stdin=b"a\n").done()
    log, one, none, limited = harness.all(
        ("log", "notes", "--json"),
        ("log", "notes", "MEMORY.md", "--json"),
        ("log", "notes", "nix.md", "--json"),
        ("log", "notes", "-n", "1", "--json"),
    )
    revisions = log.done().json
    assert [set(revision) for revision in revisions] == [
        {"revision", "at", "author", "subject", "trailers", "paths"}
    ] * 3
    assert [revision["author"] for revision in revisions] == ["owner", "assistant", "owner"]
    assert [revision["paths"] for revision in revisions] == [
        ["notes/a.md"],
        ["MEMORY.md"],
        ["MEMORY.md", "TASKS.md", "notes/README.md"],
    ]
    assert revisions[1]["trailers"]["Conversation"].endswith(" c1")
    assert all(REVISION.fullmatch(revision["revision"]) for revision in revisions)
    assert [r["at"] for r in revisions] == sorted((r["at"] for r in revisions), reverse=True)
    assert [r["revision"] for r in one.done().json] == [r["revision"] for r in revisions[1:]]
    assert [r["paths"] for r in one.json] == [["MEMORY.md"]] * 2
    assert none.done().json == []
    assert limited.done().json == revisions[:1]
