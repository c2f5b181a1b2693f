"""Measures a request: in characters, which are limited, and in tokens, which are billed.

Characters are the code points of the request's JSON, system and messages, without spaces. They are the same
on every machine and for every model. The provider counts the tokens and reports them with each answer. The
tokens of a request that was not sent yet are estimated from the previous request's count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from harness.messages.message import Message
from harness.messages.model_request import ModelRequest, ToolSpec
from workspaces.storage.records import JsonObject

TOKEN_CHARACTERS = 4
"""Characters per token of English prose; used until the provider has reported a count."""

BLOCKS_CACHED = 64
"""System blocks whose length is cached: conversations with an agent begin with the same long blocks."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Length:
    characters: int
    """The characters that the limit counts."""
    tools: int
    """The characters of the tools, which the limit does not count."""
    tokens: int
    """The tokens of the whole request: estimated, or as the provider counted them."""
    snapshot: int = 0
    """The characters that the snapshot's blocks take, a part of `characters`."""

    @property
    def all_characters(self) -> int:
        return self.characters + self.tools

    def counted(self, tokens: int) -> Length:
        """Return the length with the provider's count; unchanged if `tokens` is 0, which means no count."""
        return replace(self, tokens=tokens) if tokens else self

    def as_json(self) -> JsonObject:
        return {
            "characters": self.characters,
            "tools": self.tools,
            "tokens": self.tokens,
            "snapshot": self.snapshot,
        }


def length_of(data: JsonObject) -> Length:
    return Length(data["characters"], data["tools"], data["tokens"], data["snapshot"])


def measured(request: ModelRequest, before: Length | None, *, is_same: bool = False) -> Length:
    """Return the length of a request.

    `before` is the length of the previous request, with its actual tokens. `is_same` is True if that request
    had the same snapshot; then most of this one has been measured already.
    """
    count = len(request.breakpoints.system)
    if before is not None and is_same:
        tools, snapshot = before.tools, before.snapshot
    else:
        tools, snapshot = _tools(request.tools), _blocks(request.system[:count])
    others = request.system[count:]
    shown = characters(others, request.messages) + snapshot
    if snapshot and not others:
        shown -= 1  # nothing follows the last block: no comma there
    if before is None or before.all_characters == 0:
        tokens = round((shown + tools) / TOKEN_CHARACTERS)
    else:
        tokens = round((shown + tools) * before.tokens / before.all_characters)
    return Length(shown, tools, tokens, snapshot)


def _tools(tools: Sequence[ToolSpec]) -> int:
    """Return the characters of the tools as a JSON list, with brackets and commas."""
    return sum(tool.characters for tool in tools) + max(0, len(tools) - 1) + 2


@lru_cache(maxsize=BLOCKS_CACHED)
def _blocks(texts: tuple[str, ...]) -> int:
    """Return the characters of the blocks, each with the comma after it."""
    return sum(len(_JSON.encode(text)) + 1 for text in texts)


def characters(system: Sequence[str], messages: Sequence[Message]) -> int:
    """Return the number of code points. An emoji counts as one."""
    return len(
        _JSON.encode(
            {
                "system": system,
                "messages": [message.as_sent() for message in messages],
            }
        )
    )
