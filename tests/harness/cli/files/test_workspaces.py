"""`harness workspace`."""

from __future__ import annotations

from pathlib import Path

from tests.harness.cli.terminal import Terminal


def test_workspaces_are_created_changed_and_shown(born: Terminal) -> None:
    made = born("workspace", "create", "journal", "--description", "Days.", "--json").done().json
    assert {"id", "name", "namespace", "path"} <= set(made)
    assert Path(made["path"], "MEMORY.md").is_file()
    born("workspace", "set", "journal", "--harness", "off", "--name", "diary").done()
    listed, plain, prompt = born.all(
        ("workspace", "list", "--json"),
        ("workspace", "show", "diary"),
        ("prompt", "diary", "--json"),
    )
    assert [w["name"] for w in listed.done().json["workspaces"]] == ["diary", "notes"]
    assert made["id"] in plain.done().out
    assert [part["source"] for part in prompt.done().json] == ["memory", "memory/diary", "date"]
