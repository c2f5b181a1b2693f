"""`harness prompt`."""

from __future__ import annotations

from tests.harness.cli.terminal import Terminal


def test_prompt_tells_its_parts(born: Terminal) -> None:
    parts = born("prompt", "--agent", "assistant", "--json").done().json
    assert [(part["source"], part["trusted"]) for part in parts] == [
        ("guidance", True),
        ("memory", True),
        ("memory/notes", False),
        ("date", True),
    ]
    assert all(part["characters"] == len(part["text"]) for part in parts)
