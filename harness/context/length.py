"""How long a request is: in characters, by which it is limited, and in tokens, by which it is paid.

Characters are the code points of the request's JSON, system and messages, without spaces: the same on every
machine and for every model. Tokens are the provider's to count, and it says how many they were with each
answer; of what is not asked yet they are estimated by how many the request before turned out to be.
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
"""Of English prose, as long as no provider has counted."""

BLOCKS_MEASURED = 64
"""Of the turns of a process: conversations with an agent begin with the same, and it is long."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Length:
    characters: int
    """What the limit is about."""
    tools: int
    """What the tools take beside it, in characters."""
    tokens: int
    """Of all of it; estimated, or as the provider has counted."""
    snapshot: int = 0
    """Of the characters, what the blocks of the snapshot take."""

    @property
    def all_characters(self) -> int:
        return self.characters + self.tools

    def counted(self, tokens: int) -> Length:
        """As it turned out; 0: nobody has counted."""
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
    """`before`: the request before, as it turned out; `is_same`: it was of the same snapshot, and so most
    of this one has been measured."""
    count = len(request.breakpoints.system)
    if before is not None and is_same:
        tools, snapshot = before.tools, before.snapshot
    else:
        tools, snapshot = _tools(request.tools), _blocks(request.system[:count])
    others = request.system[count:]
    shown = characters(others, request.messages) + snapshot
    if snapshot and not others:
        shown -= 1  # the comma behind the last block
    if before is None or before.all_characters == 0:
        tokens = round((shown + tools) / TOKEN_CHARACTERS)
    else:
        tokens = round((shown + tools) * before.tokens / before.all_characters)
    return Length(shown, tools, tokens, snapshot)


def _tools(tools: Sequence[ToolSpec]) -> int:
    """In brackets, with commas between them."""
    return sum(tool.characters for tool in tools) + max(0, len(tools) - 1) + 2


@lru_cache(maxsize=BLOCKS_MEASURED)
def _blocks(texts: tuple[str, ...]) -> int:
    """Each with the comma behind it."""
    return sum(len(_JSON.encode(text)) + 1 for text in texts)


def characters(system: Sequence[str], messages: Sequence[Message]) -> int:
    """In code points: of emoji, too, one each."""
    return len(
        _JSON.encode(
            {
                "system": system,
                "messages": [message.as_sent() for message in messages],
            }
        )
    )
