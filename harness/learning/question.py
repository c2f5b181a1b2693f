"""The request of a pass: what was said, what is known already, and the form of the reply.

The reply is one call of a tool that is never run. Its schema is what the pass wants to know.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.context.fence import fenced, one_line
from harness.learning.block_proposal import BLOCK_NAMES, BLOCK_SCHEMA, CurrentBlocks
from harness.learning.candidate import FACT_SCHEMA, FACTS_MAX
from harness.memory.blocks.block import LIMITS
from harness.memory.facts.fact import Fact
from harness.messages.message import user
from harness.messages.model_request import ModelRequest, Reply, ToolSpec
from harness.runtime.templates import render
from workspaces.storage.records import JsonObject

SAVE_MEMORY = "save_memory"

KNOWN_MAX = 20
"""Values of facts that the model is asked not to repeat: those that changed last."""

KNOWN_CHARACTERS_MAX = 300
"""Characters of one of them. All facts are compared afterwards, in full."""

OUTPUT_TOKENS_MAX = 2_000
BLOCKS_OUTPUT_TOKENS_MAX = 8_000
"""Tokens of a reply that may rewrite two blocks, as far as the budget pays for them."""


def question(text: str, known: Sequence[Fact] | None, blocks: CurrentBlocks | None) -> ModelRequest:
    """Return the request of a pass. `known` None: no facts are wanted; `blocks` None: no blocks."""
    properties: JsonObject = {}
    instructions: list[str] = []
    if known is not None:
        properties["facts"] = {"type": "array", "maxItems": FACTS_MAX, "items": FACT_SCHEMA}
        instructions.append(render("learning/extraction.md", facts_max=FACTS_MAX))
    if blocks is not None:
        properties["blocks"] = {
            "type": "array",
            "maxItems": len(BLOCK_NAMES),
            "items": BLOCK_SCHEMA,
        }
        instructions.append(render("learning/sleep.md", limits=LIMITS))
    shown = render(
        "learning/conversation.md",
        text=fenced(text),
        known=[_value(fact) for fact in newest(known or ())],
        blocks=[
            {"scope": scope, "type": kind, "content": "" if one is None else fenced(one.content)}
            for (scope, kind), one in (blocks or {}).items()
        ],
    )
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    tool = ToolSpec(SAVE_MEMORY, render("learning/save-memory.md"), schema)
    return ModelRequest(tuple(instructions), (user(shown),), (tool,), forced_tool=SAVE_MEMORY)


def answer_in(reply: Reply) -> JsonObject | None:
    """Return the input of the call that a reply consists of. None if it is cut, or holds no such call."""
    if not reply.is_complete:
        return None
    calls = [call for call in reply.message.tool_calls if call.name == SAVE_MEMORY]
    return calls[0].input if calls else None


def newest(facts: Sequence[Fact]) -> Sequence[Fact]:
    """Return the facts that changed last."""
    return sorted(facts, key=_updated_at, reverse=True)[:KNOWN_MAX]


def _updated_at(fact: Fact) -> str:
    return fact.updated_at


def _value(fact: Fact) -> str:
    return one_line(fact.value)[:KNOWN_CHARACTERS_MAX]
