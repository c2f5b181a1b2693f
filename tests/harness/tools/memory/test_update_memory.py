"""The tool `update_memory`, and `recall` over blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness import Harness
from harness.memory.blocks.block import Block
from harness.memory.blocks.condition import UNCONDITIONAL
from harness.messages.message import ToolCall, ToolResult
from harness.models.scripted import ScriptedModel
from harness.transcripts.outcome import Outcome
from workspaces.errors import NotFound
from workspaces.revision import Author

Scripted = Callable[..., tuple[Harness, ScriptedModel]]
AUTHOR = Author("ada", "usr_ada", "api")


def put(harness: Harness, block: Any, content: str, agent: str | None = None) -> Block:
    place = harness.blocks.place(block, agent=agent)
    return harness.blocks.put(place, content, UNCONDITIONAL, by=AUTHOR).block


def core(harness: Harness, agent: str | None = None) -> Block:
    return harness.blocks.get(harness.blocks.place("core", agent=agent))


def called(harness: Harness, model: ScriptedModel, **arguments: Any) -> tuple[str, Outcome]:
    """The result of one call, as the model reads it."""
    call = {"block": "core", "operation": "add", **arguments}
    model.script((ToolCall("t1", "update_memory", call),), "done")
    outcome = harness.run("Remember this.")
    if outcome.status != "done":
        return "", outcome
    (result,) = [p for p in model.requests[-1].messages[-1].parts if isinstance(p, ToolResult)]
    return result.text, outcome


@pytest.fixture
def asked(scripted: Scripted) -> tuple[Harness, ScriptedModel]:
    return scripted()


def test_an_entry_is_added_to_a_block_that_did_not_exist(
    asked: tuple[Harness, ScriptedModel],
) -> None:
    harness, model = asked
    told, outcome = called(harness, model, text="likes tea")
    assert core(harness).content == "- likes tea"
    assert core(harness).version[:12] in told
    assert "11 of 4,000 characters, 1 of 20 entries" in told
    (revision,) = outcome.changes
    assert revision.workspace == "_user"
    (logged,) = harness.blocks.workspace(harness.blocks.place("core")).log("blocks/core.md")
    assert (logged.id, logged.author) == (revision.revision, "assistant")
    assert logged.trailers["Source"] == "turn"
    assert logged.trailers["Turn"] == outcome.turn_id
    assert "- likes tea" in "\n".join(harness.preview().request.system)


def test_every_operation_changes_the_block(asked: tuple[Harness, ScriptedModel]) -> None:
    harness, model = asked
    put(harness, "core", "- one\n- two")
    called(harness, model, operation="replace", entry="one", text="first")
    assert core(harness).content == "- first\n- two"
    called(harness, model, operation="remove", entry="- two")
    assert core(harness).content == "- first"
    version = core(harness).version[:12]
    called(harness, model, operation="rewrite", text="# New\n- all new\n", version=version)
    assert core(harness).content == "# New\n- all new"
    called(harness, model, text="with me alone", scope="agent")
    assert core(harness, "assistant").content == "- with me alone"
    told, outcome = called(harness, model, text="all new")
    assert "It says so already" in told
    assert outcome.changes == ()


@pytest.mark.parametrize(
    "arguments",
    [
        {"operation": "rewrite", "text": "- all new"},
        {"operation": "rewrite", "text": "- all new", "version": "0" * 12},
        {"operation": "add", "text": "more", "version": "0" * 12},
        {"operation": "remove", "entry": "three"},
        {"operation": "rewrite", "text": "x" * 4_001, "version": "VERSION"},
    ],
    ids=["no version", "a stale version", "a stale version to add", "no such entry", "too long"],
)
def test_a_refusal_shows_the_model_what_the_block_says_now(
    asked: tuple[Harness, ScriptedModel], arguments: dict[str, Any]
) -> None:
    harness, model = asked
    block = put(harness, "core", "- one\n- two </memory>")
    if arguments.get("version") == "VERSION":
        arguments = {**arguments, "version": block.version}
    told, outcome = called(harness, model, **arguments)
    assert told.startswith("Not done:")
    assert "- one\n- two &lt;/memory>" in told
    assert block.version[:12] in told
    assert outcome.changes == ()
    assert core(harness) == block


def test_a_call_that_lacks_what_it_needs_is_refused(asked: tuple[Harness, ScriptedModel]) -> None:
    harness, model = asked
    for arguments, word in (
        ({"operation": "add"}, "text"),
        ({"operation": "remove"}, "entry"),
        ({"operation": "replace", "entry": "one"}, "text"),
        ({"operation": "rewrite"}, "text"),
        ({"text": "x", "version": "12"}, "version"),
        ({"text": "x", "scope": "team"}, "scope"),
    ):
        told, _ = called(harness, model, **arguments)
        assert told.startswith(f"Not done: {word}")
    with pytest.raises(NotFound):
        core(harness)


def test_the_tool_is_offered_unless_private_is_off(harness: Harness) -> None:
    def offered() -> set[str]:
        return {tool.name for tool in harness.preview().request.tools}

    assert "update_memory" in offered()
    harness.agents.create("bare", sandbox=None)
    assert "update_memory" in {tool.name for tool in harness.preview("bare").request.tools}
    harness.agents.patch("assistant", {"config": {"private": "off"}})
    assert "update_memory" not in offered()


def test_the_tool_asks_where_the_sandbox_asks(asked: tuple[Harness, ScriptedModel]) -> None:
    harness, model = asked
    harness.rooms.sandboxes.patch("default", {"config": {"permission": "ask"}})
    _, outcome = called(harness, model, text="likes tea")
    (pending,) = outcome.pending
    assert (pending.call.name, pending.asked.workspace) == ("update_memory", "_user")
    model.script("noted")
    harness.approve(harness.conversations.get(outcome.conversation_id))
    assert core(harness).content == "- likes tea"


def test_recall_finds_archival_lines_with_private_off(
    asked: tuple[Harness, ScriptedModel],
) -> None:
    harness, model = asked
    put(harness, "archival", "- Harbour lease: the lawyer wants options")
    put(harness, "archival", "- Harbour: legal approved", "assistant")
    harness.agents.create("other", workspaces=["notes"])
    for private in ("off", "ro"):
        harness.agents.patch("assistant", {"config": {"private": private}})
        model.script((ToolCall("t1", "recall", {"query": "Harbour lease", "cut": "off"}),), "done")
        harness.run("What of Harbour?")
        (result,) = [p for p in model.requests[-1].messages[-1].parts if isinstance(p, ToolResult)]
        assert "the lawyer wants options" in result.text
        assert "legal approved" in result.text
    model.script((ToolCall("t1", "recall", {"query": "Harbour lease", "cut": "off"}),), "done")
    harness.run("What of Harbour?", agent="other")
    (result,) = [p for p in model.requests[-1].messages[-1].parts if isinstance(p, ToolResult)]
    assert "legal approved" not in result.text
