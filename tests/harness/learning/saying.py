"""What models say to the reader of a conversation, and conversations for them to read."""

from __future__ import annotations

from typing import Any

from harness import Harness
from harness.conversations.conversation import Conversation
from harness.learning.question import SAVE_MEMORY
from harness.messages.message import Part, ToolCall

LONG = "The nightly export of the harbour project goes to the archive on the second floor. " * 3


def fact(
    key: str = "orders-database",
    value: str = "The orders service uses PostgreSQL 16.",
    confidence: float = 0.9,
    scope: str = "workspace",
) -> dict[str, Any]:
    return {"key": key, "value": value, "confidence": confidence, "scope": scope}


def saves(*facts: Any, blocks: tuple[Any, ...] | None = None) -> list[Part]:
    """A reply that proposes these facts, and these blocks."""
    proposed: dict[str, Any] = {"facts": list(facts)}
    if blocks is not None:
        proposed["blocks"] = list(blocks)
    return [ToolCall("save_1", SAVE_MEMORY, proposed)]


def block(content: str, kind: str = "core", scope: str = "user") -> dict[str, Any]:
    return {"scope": scope, "block": kind, "content": content}


def said(harness: Harness, text: str = LONG, key: str = "c1") -> Conversation:
    """A conversation in which this was said."""
    harness.run(text, conversation=key)
    return harness.conversation(key)


def rows(harness: Harness, workspace: str = "notes") -> dict[str, str]:
    return {one.key: one.value for one in harness.facts.of_workspace(workspace).list()}


def agents_rows(harness: Harness) -> dict[str, str]:
    return {one.key: one.value for one in harness.facts.of_agent("assistant").list()}


def configure(harness: Harness, **config: Any) -> None:
    harness.agents.patch("assistant", {"config": config})
