"""New contents of memory blocks that a model proposes, and the check of them.

A proposal stands for the version that the model was shown. It is written only if the block still is that
version. A block is never emptied: a model that proposes nothing has most likely misunderstood.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from harness.memory.blocks.block import (
    BLOCK_SCOPES,
    BLOCK_TYPES,
    Block,
    BlockScope,
    BlockType,
    check_limits,
    content_of,
)
from harness.memory.secrets import find_secrets
from workspaces.errors import OverLimit
from workspaces.ids import Version
from workspaces.storage.records import JsonObject

BlockName = tuple[BlockScope, BlockType]
CurrentBlocks = Mapping[BlockName, Block | None]
"""The blocks that a model is shown; None for one that does not exist."""

BLOCK_NAMES: Sequence[BlockName] = tuple(
    (scope, block_type) for scope in BLOCK_SCOPES for block_type in BLOCK_TYPES
)

BlockDrop = Literal[
    "invalid",  # it has another form than the schema says
    "secret",  # it holds what looks like a secret
    "too_long",
    "empty",
    "known",  # the block says so already
]

BLOCK_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "scope": {"type": "string", "enum": list(BLOCK_SCOPES)},
        "block": {"type": "string", "enum": list(BLOCK_TYPES)},
        "content": {"type": "string", "description": "The whole new content, a Markdown list."},
    },
    "required": ["scope", "block", "content"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class BlockProposal:
    """The new content of a block, for one version of it."""

    scope: BlockScope
    type: BlockType
    content: str
    version: Version | None
    """The version that the model was shown; None if there was no block."""

    @property
    def name(self) -> BlockName:
        return self.scope, self.type

    def as_json(self) -> JsonObject:
        return {
            "scope": self.scope,
            "block": self.type,
            "content": self.content,
            "version": self.version,
        }


def block_proposal_of(data: JsonObject) -> BlockProposal:
    """Return a proposal that was stored."""
    return BlockProposal(data["scope"], data["block"], data["content"], data["version"])


def checked_blocks(
    proposed: object, current: CurrentBlocks
) -> tuple[list[BlockProposal], Counter[BlockDrop]]:
    """Return the proposals that may be written, one for a block, and the reasons of the others."""
    found: dict[BlockName, BlockProposal] = {}
    dropped: Counter[BlockDrop] = Counter()
    listed = cast("list[Any]", proposed) if isinstance(proposed, list) else []
    for one in listed[: 2 * len(BLOCK_NAMES)]:
        proposal = _proposal(one, current)
        if isinstance(proposal, BlockProposal):
            found[proposal.name] = proposal
        else:
            dropped[proposal] += 1
    return list(found.values()), dropped


def _proposal(proposed: object, current: CurrentBlocks) -> BlockProposal | BlockDrop:
    if not isinstance(proposed, dict):
        return "invalid"
    fields = cast("dict[str, Any]", proposed)
    content, stated = fields.get("content"), (fields.get("scope"), fields.get("block"))
    name = next((one for one in BLOCK_NAMES if one == stated), None)
    if name is None or not isinstance(content, str) or "\0" in content:
        return "invalid"
    scope, block_type = name
    content = content_of(content.replace("\r\n", "\n"))
    block = current.get(name)
    if not content.strip():
        return "empty"
    if block is not None and block.content == content:
        return "known"
    try:
        check_limits(block_type, content)
    except OverLimit:
        return "too_long"
    known = () if block is None else find_secrets(block.content)
    if len(find_secrets(content)) > len(known):  # a person may have written one down
        return "secret"
    return BlockProposal(scope, block_type, content, None if block is None else block.version)
