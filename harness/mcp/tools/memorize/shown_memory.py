"""A memory in the answer of a tool: the same fields as everywhere, cut to what fits."""

from __future__ import annotations

import json
from typing import Any

from harness.mcp.tool import ToolOutput, fitting
from harness.memorize.memory import MemorizedFact

GROUNDINGS_BYTES_MAX = 6 * 1024
METADATA_BYTES_MAX = 3 * 1024


class ShownGrounding(ToolOutput):
    message_position: int | None
    raw_event_index: int
    start_character: int
    end_character: int
    quote: str
    """At most 200 characters of it."""


class ShownMemory(ToolOutput):
    id: str
    key: str
    memory_key: str | None
    content: str
    tags: list[str]
    confidence: float | None
    metadata: dict[str, Any]
    groundings: list[ShownGrounding]
    groundings_left_out: int
    agent_id: str | None
    conversation_id: str
    provider: str
    project: str | None
    workspace: str
    source: str
    created_at: str
    updated_at: str


def shown_memory(
    memory: MemorizedFact, groundings_bytes: int = GROUNDINGS_BYTES_MAX
) -> ShownMemory:
    said = memory.as_json()
    quoted = [
        ShownGrounding(
            message_position=one.message,
            raw_event_index=one.event,
            start_character=one.start,
            end_character=one.end,
            quote=one.quote,
        )
        for one in memory.moments
    ]
    kept = fitting(quoted, groundings_bytes)
    metadata = said["metadata"]
    if len(json.dumps(metadata)) > METADATA_BYTES_MAX:
        metadata = {"left_out": "it is too long: GET /api/memories/{id} has it"}
    return ShownMemory.model_validate(
        {
            **said,
            "key": memory.fact.key,
            "metadata": metadata,
            "groundings": kept,
            "groundings_left_out": len(quoted) - len(kept),
        }
    )
