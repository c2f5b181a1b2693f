"""`harness prompt`."""

from __future__ import annotations

from harness import Harness
from harness.memory.blocks.condition import UNCONDITIONAL
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


def test_prompt_shows_core_blocks_and_the_reminder_of_a_memory_policy(born: Terminal) -> None:
    with Harness.open(born.home) as harness:
        by = harness.rooms.principal.author("api")
        for block, content in (("core", "- likes tea"), ("archival", "- Harbour: signed in May")):
            place = harness.blocks.place(block)
            harness.blocks.put(place, content, UNCONDITIONAL, by=by)
    auto, broken, core = born.all(
        ("prompt", "-m", "Harbour?", "--memory-policy", '{"archival_mode": "auto"}', "--json"),
        ("run", "Hi", "--memory-policy", '{"archival": 1}', "--json"),
        ("prompt", "--memory-policy", '{"include_user_core": false}'),
    )
    by_source = {part["source"]: part["text"] for part in auto.done().json}
    assert "- likes tea" in by_source["blocks/user"]
    assert "signed in May" in by_source["reminder"]
    assert broken.refused("memory_policy.archival").out
    assert "likes tea" not in core.done().out
