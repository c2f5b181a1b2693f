"""What a person is told about a turn beside its reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness import Harness
from harness.messages.message import ToolCall
from harness.models.scripted import ScriptedModel
from harness.presentation.turn_notes import turn_notes


def write(path: str, content: str, **more: Any) -> ToolCall:
    return ToolCall(f"w-{path}-{len(content)}", "write", {"path": path, "content": content, **more})


def test_each_changed_file_is_named_with_its_added_and_removed_lines(
    scripted: Callable[..., tuple[Harness, ScriptedModel]],
) -> None:
    harness, _ = scripted(
        [write("a.md", "one\ntwo\n"), write("b.md", "b\n")],
        [write("a.md", "two\nthree\nfour\n"), write("raw.md", "\0" * 20_000)],
        [write("team.md", "x\n", workspace="team")],
        "Done.",
    )
    harness.workspaces.create("team")
    agent = harness.agents.create("helper", workspaces=["notes", "team"])
    outcome = harness.run("Write.", agent=agent)
    assert turn_notes(harness, outcome).changes == (
        "memory: a.md +3",
        "memory: b.md +1",
        "memory: raw.md binary, 20 KB",
        "memory: team/team.md +1",
    )
