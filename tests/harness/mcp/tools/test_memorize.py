"""The tools of memorize, called by a client of a spawned `harness mcp` and over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp_types import CallToolResult

from harness.mcp.tool import ANSWER_BYTES_MAX
from harness.memory.facts.fact import canonical_path
from tests.harness.mcp.clients import Place, bytes_of, over_http, over_stdio, run, text_of
from tests.harness.memorize.local.transcripts import THREAD, codex_said, meta, rollout, write


def called(
    place: Place, root: Path, *calls: tuple[str, dict[str, Any]], agent: str = ""
) -> list[CallToolResult]:
    elsewhere = str(root / "nobody")
    variables = {"CODEX_HOME": str(root), "CLAUDE_CONFIG_DIR": elsewhere, "HOME": elsewhere}
    variables["HARNESS_AGENT_ID"] = agent

    async def work() -> list[CallToolResult]:
        async with over_stdio(place.home, "auto", variables=variables) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return run(work)


def content(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    assert bytes_of(result) <= ANSWER_BYTES_MAX
    return result.structured_content


def test_a_local_conversation_proves_a_fact_and_why_quotes_it(place: Place, tmp_path: Path) -> None:
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", "staging is called heron"))
    memory = {"conversation_id": THREAD, "content": "Staging: heron.", "memory_key": "staging"}
    grounded = {**memory, "groundings": [{"quote": "called heron"}]}
    made, again, why, numbered = map(
        content,
        called(
            place,
            tmp_path,
            ("memorize", grounded),
            ("memorize", grounded),
            ("why", {"path": canonical_path("memorize:staging"), "text": "Staging: heron."}),
            ("resource_list", {"q": "heron", "per_page": 1}),
        ),
    )
    assert (made["status"], again["status"]) == ("created", "unchanged")
    assert (why["quote"], why["conversation"]) == ("called heron", THREAD)
    assert (why["source"], numbered["meta"]["total"]) == ("memorize", 1)


def test_the_agent_of_the_environment_is_the_default_and_mistakes_are_named(
    place: Place, tmp_path: Path
) -> None:
    write(rollout(tmp_path, THREAD), meta(), codex_said("user", "staging is called heron"))
    memory = {"conversation_id": THREAD, "content": "Of an agent."}
    made, number, wrong = called(
        place,
        tmp_path,
        ("memorize", memory),
        ("memorize", {**memory, "agent_id": 7}),
        ("memorize", {**memory, "groundings": [{"quote": "goose"}]}),
        agent="assistant",
    )
    assert content(made)["memory"]["workspace"].startswith("agent:")
    assert number.is_error
    assert "groundings.0.quote" in text_of(wrong)


def test_an_answer_stays_small_however_much_a_memory_holds(place: Place) -> None:
    said = "word " * 400
    sent = {
        "id": "long",
        "provider": "codex",
        "messages": [{"role": "user", "text": said} for _ in range(50)],
    }
    memory = {
        "conversation_id": "long",
        "conversation": sent,
        "content": "x" * 2000,
        "metadata": {"much": "y" * 10_000},
        "groundings": [{"message_position": n, "quote": said} for n in range(1, 51)],
    }

    async def work() -> list[CallToolResult]:
        async with over_http(place.server.url, place.server.key, "auto") as client:
            made = await client.call_tool("memorize", memory)
            listed = await client.call_tool("resource_list", {"per_page": 100})
            return [made, listed]

    made, listed = map(content, run(work))
    assert made["memory"]["groundings_left_out"] > 0
    assert listed["meta"]["total"] >= 1
