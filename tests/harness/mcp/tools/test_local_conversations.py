"""The tools that read conversations of other agents, called by a client of a spawned `harness mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from tests.harness.mcp.clients import Place, over_stdio, run, text_of
from tests.harness.memorize.local.transcripts import OTHER, THREAD, codex_said, meta, rollout, write


def called(place: Place, root: Path, *calls: tuple[str, dict[str, Any]]) -> list[CallToolResult]:
    """Call tools, one after the other, of a person whose Codex keeps its files in `root`."""
    elsewhere = str(root / "nobody")
    variables = {"CODEX_HOME": str(root), "CLAUDE_CONFIG_DIR": elsewhere, "HOME": elsewhere}

    async def work() -> list[CallToolResult]:
        async with over_stdio(place.home, "auto", variables=variables) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return run(work)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    key = "ghp_" + "aB3" * 12
    said = [codex_said("user", "About herons."), codex_said("assistant", f"Use {key}.")]
    write(rollout(tmp_path, THREAD), meta(), *said)
    long = [codex_said("user", f"{number} " + "word " * 1_000) for number in range(30)]
    write(rollout(tmp_path, OTHER), meta(OTHER), *long)
    return tmp_path


def test_conversations_are_listed_and_read_with_positions(place: Place, root: Path) -> None:
    listed, read, wrong = called(
        place,
        root,
        ("local_conversations_list", {"query": "herons"}),
        ("local_conversations_get", {"id": THREAD}),
        ("local_conversations_list", {"provider": "codecs"}),
    )
    assert listed.structured_content is not None
    assert [one["id"] for one in listed.structured_content["conversations"]] == [THREAD]
    assert listed.structured_content["left_out"] == 0
    assert read.structured_content is not None
    assert [(one["position"], one["text"]) for one in read.structured_content["messages"]] == [
        (1, "About herons."),
        (2, "Use [redacted: GitHub token]."),
    ]
    assert "1 user (message): About herons." in text_of(read)
    assert wrong.is_error
    assert "codecs" in text_of(wrong)


def test_an_answer_is_bounded_and_says_what_it_left_out(place: Place, root: Path) -> None:
    around, ambiguous, unknown = called(
        place,
        root,
        ("local_conversations_get", {"id": OTHER, "around": 10}),
        ("local_conversations_get", {"id": "019b0000"}),
        ("local_conversations_get", {"id": "nobody"}),
    )
    content = around.structured_content
    assert content is not None
    positions = [one["position"] for one in content["messages"]]
    assert 10 in positions
    assert positions == sorted(positions)
    assert content["total"] == 30
    assert content["left_out"] == 20 - len(positions) > 0
    assert "more are left out" in text_of(around)
    for refused, words in ((ambiguous, THREAD), (unknown, "no local conversation")):
        assert refused.is_error
        assert words in text_of(refused)
