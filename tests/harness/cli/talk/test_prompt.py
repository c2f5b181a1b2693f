"""`harness prompt`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_prompt_lists_its_parts_with_their_sources(born: Terminal) -> None:
    parts = born("prompt", "--agent", "assistant", "--json").done().json
    assert [(part["source"], part["trusted"]) for part in parts] == [
        ("guidance", True),
        ("memory", True),
        ("memory/notes", False),
        ("date", True),
    ]
    assert all(part["characters"] == len(part["text"]) for part in parts)
