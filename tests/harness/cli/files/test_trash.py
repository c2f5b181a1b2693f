"""`harness trash`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_a_deleted_workspace_is_listed_restored_and_removed(born: Terminal) -> None:
    born("workspace", "create", "plans").done()
    born("write", "plans", "a.md", stdin=b"one\n").done()
    born("workspace", "rm", "plans").done()
    (listed,) = born("trash", "list", "--json").done().json["trash"]
    assert (listed["name"], listed["why"]) == ("plans", "here")
    assert "plans" in born("trash", "list").done().out
    assert (
        born("trash", "restore", "plans", "--name", "again", "--json").done().json["name"]
        == "again"
    )
    assert born("cat", "again", "a.md").done().out == "one\n"
    born("workspace", "rm", "again").done()
    refused = born("trash", "empty")
    assert refused.code == 1 and "--yes" in refused.stderr
    assert born("trash", "empty", "--older-than", "1", "--yes", "--json").done().json == {
        "removed": []
    }
    assert "again" in born("trash", "empty", "--yes").done().out
    assert born("trash", "list", "--json").done().json == {"trash": []}
    born("trash", "restore", "again").refused("trash list")
