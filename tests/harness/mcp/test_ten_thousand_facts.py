"""Every tool on a home with ten thousand facts: its answer is bounded, and says what it left out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from harness import Harness
from harness.mcp.caller import McpCaller
from harness.mcp.tool import ANSWER_BYTES_MAX, McpCall
from harness.mcp.tools import TOOLS
from harness.memorize.memory import MemoryOrigin
from harness.memory.facts.fact import canonical_path
from harness.memory.facts.fact_file import write_fact
from harness.sandboxes.none import NoSandbox
from tests.harness.mcp.clients import bytes_of, text_of
from tests.machines import SOAK

FACTS = 10_000 if SOAK else 1_000
"""A tenth of them in each run of the suite: also these are five times what an answer may hold."""

LINES = 20_000 if SOAK else 4_000

ORIGIN = MemoryOrigin("c", "codex", "0" * 64, "0" * 64, "0" * 64)
SENT = {
    "id": "sent",
    "provider": "codex",
    "messages": [{"role": "user", "text": "word " * 20} for _ in range(1_000)],
}
"""A conversation that comes with the call."""

CALLS: dict[str, tuple[dict[str, Any], str | None]] = {
    "recall": ({"query": "the thing on a shelf", "limit": 50}, None),
    "read": ({"path": "MEMORY.md"}, "more lines: read on with offset"),
    "glob": ({"pattern": "**/*.md"}, "left out"),
    "grep": ({"pattern": "thing"}, "left out"),
    "write": ({"path": "notes/new.md", "content": "- new\n"}, None),
    "edit": ({"path": "notes/new.md", "old": "- new", "new": "- newer"}, None),
    "why": ({"path": "MEMORY.md", "line": 1}, None),
    "when_did": ({"words": "thing number", "limit": 50}, "left out"),
    "recall_at": ({"query": "the thing on a shelf", "at": "2999-01-01"}, None),
    "whats_new": ({"since": "1970-01-01", "limit": 1}, "left out"),
    "update_memory": ({"block": "core", "operation": "add", "text": "likes tea"}, None),
    "list_facts": ({"limit": 500}, "more: list on with offset"),
    "put_fact": ({"key": "fact 7", "value": "It moved."}, None),
    "delete_fact": ({"fact": "fact 8"}, None),
    "get_my_decisions": ({"agent_id": "assistant"}, None),
    "memorize": ({"conversation_id": "sent", "conversation": SENT, "content": "It said so."}, None),
    "resource_list": ({"per_page": 100}, "left out"),
    "resource_get": ({"id": "fact 10"}, None),
    "resource_delete": ({"id": "fact 10"}, None),
    "schema": ({"operation": "memorize"}, None),
}
"""Arguments that ask for as much as there is, and the words with which the answer says that it is not all."""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpCaller]:
    home: Path = tmp_path_factory.mktemp("facts") / "home"
    with Harness.open(home, sandbox=NoSandbox("not here")) as harness:
        root = harness.workspaces.create("many").root
        harness.workspaces.patch("many", {"config": {"quota": {"files": FACTS + 100}}})
        (root / "facts").mkdir()
        for number in range(FACTS):
            key = f"fact {number}"
            value = f"The thing with number {number} lies on shelf {number % 97}, " + "so " * 30
            said = {"memorize": ORIGIN.as_attributes()} if number % 10 == 0 else {}
            data = write_fact(
                None,
                key=key,
                value=value,
                pinned=number % 50 == 0,
                importance=0,
                attributes=said,
            )
            (root / canonical_path(key)).write_bytes(data)
        lines = (f"- line {number} of what is remembered\n" for number in range(LINES))
        (root / "MEMORY.md").write_text("".join(lines))
        harness.workspaces.get("many").edits.commit()
        yield McpCaller(harness.rooms, "many")


def answered(caller: McpCaller, name: str, arguments: dict[str, Any]) -> CallToolResult:
    (tool,) = (one for one in TOOLS if one.name == name)
    return asyncio.run(tool.call(arguments, McpCall(caller)))


def test_all_tools_are_called() -> None:
    assert set(CALLS) == {tool.name for tool in TOOLS}


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_is_bounded_and_says_what_it_left_out(caller: McpCaller, name: str) -> None:
    arguments, words = CALLS[name]
    answer = answered(caller, name, arguments)
    text = text_of(answer)
    assert not answer.is_error, text
    assert bytes_of(answer) <= ANSWER_BYTES_MAX
    if words is not None:
        assert words in text[-400:], text[-400:]


def test_the_pages_of_a_list_hold_every_fact(caller: McpCaller) -> None:
    offset: int | None = FACTS - 100
    found: list[str] = []
    while offset is not None:
        answer = answered(caller, "list_facts", {"offset": offset, "limit": 500})
        content = answer.structured_content or {}
        found += [fact["key"] for fact in content["facts"]]
        assert content["next_offset"] is None or content["next_offset"] > offset
        offset = content["next_offset"]
    assert len(found) == len(set(found)) > 90
