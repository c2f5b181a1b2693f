"""Parses an answer of the provider, event by event.

The SDK can assemble answers itself. Here it is done more strictly, because three cases matter to us. A cut
stream raises nothing in the SDK; here an answer is complete only if its `message_stop` came. In the SDK a
tool call whose input is not valid JSON discards the whole answer, its text included. Here it becomes a call
that the tool will refuse, so that the model can correct it. And the usage is known here at every moment, even
if the answer is cancelled or cut.
"""

from __future__ import annotations

from typing import cast

from harness.messages.message import INVALID_JSON, Part, Text, Thinking, ToolCall
from harness.messages.model_request import NO_USAGE, Usage
from harness.runtime.strict_json import parse_json
from workspaces.errors import Refused
from workspaces.storage.records import JsonObject

_TEXT_OF_DELTA = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
_TEXT_OF_BLOCK = {"text": "text", "thinking": "thinking"}


class StreamParser:
    def __init__(self) -> None:
        self.usage = NO_USAGE
        self.stop_reason: str | None = None
        self.stop_details: JsonObject = {}
        self.is_whole = False
        self.block = 0
        """The number of the block that the newest text belongs to."""
        self._has_begun = False
        self._blocks: list[JsonObject] = []
        self._pieces: list[list[str]] = []

    def take(self, event: JsonObject) -> str | None:
        """Return the text that this event adds to the answer, or None.

        Raises: ValueError, LookupError, AttributeError or TypeError if the event is invalid.
        """
        kind = event["type"]
        if kind == "message_start":
            self._has_begun = True
            self._count(event["message"]["usage"])
        elif not self._has_begun:
            raise ValueError(f"{kind} before the beginning")
        elif kind == "content_block_start":
            self._blocks.append({**event["content_block"]})
            self._pieces.append([])
        elif kind == "content_block_delta":
            index: int = event["index"]
            self.block = index
            return self._add(self._blocks[index], self._pieces[index], event["delta"])
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")
            self.stop_details = {**(event["delta"].get("stop_details") or {})}
            self._count(event["usage"])
        elif kind == "message_stop":
            self.is_whole = True
        return None

    @property
    def block_count(self) -> int:
        return len(self._blocks)

    def blocks(self) -> list[JsonObject]:
        """Return the content in the form that the provider accepts back."""
        return [
            self._closed(block, "".join(pieces))
            for block, pieces in zip(self._blocks, self._pieces, strict=True)
            if not (block["type"] == "thinking" and not block.get("signature"))
        ]

    def parts(self) -> tuple[Part, ...]:
        return tuple(part_of(block) for block in self.blocks())

    def _add(self, block: JsonObject, pieces: list[str], delta: JsonObject) -> str | None:
        kind = delta["type"]
        if kind in _TEXT_OF_DELTA:
            piece: str = delta[_TEXT_OF_DELTA[kind]]
            pieces.append(piece)
            return piece if kind == "text_delta" else None
        if kind == "signature_delta":
            block["signature"] = delta["signature"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return None

    def _closed(self, block: JsonObject, added: str) -> JsonObject:
        """Return the finished block. The caller leaves out thinking that was cut before its signature came,
        because the provider never accepts it back."""
        if field := _TEXT_OF_BLOCK.get(block["type"]):
            return {**block, field: block.get(field, "") + added}
        if "input" in block and added:
            return {**block, "input": _input(added)}
        return block

    def _count(self, counted: JsonObject) -> None:
        """Update the usage. Counts cover the whole answer so far; a count that is not repeated still
        holds."""
        before = self.usage
        cache_creation: JsonObject = counted.get("cache_creation") or {}
        self.usage = Usage(
            _newest(counted.get("input_tokens"), before.input),
            _newest(counted.get("output_tokens"), before.output),
            _newest(counted.get("cache_read_input_tokens"), before.cache_read),
            _newest(counted.get("cache_creation_input_tokens"), before.cache_write),
            _newest(cache_creation.get("ephemeral_1h_input_tokens"), before.cache_write_hour),
        )


def _newest(counted: int | None, before: int) -> int:
    return before if counted is None else counted


def _input(text: str) -> JsonObject:
    try:
        value = parse_json(text, within="input")
    except Refused:
        return {INVALID_JSON: text}
    return cast(JsonObject, value) if isinstance(value, dict) else {INVALID_JSON: text}


def usage_of_answer(counted: JsonObject | None) -> Usage:
    """Return the usage of an answer that the SDK has assembled."""
    if counted is None:
        return NO_USAGE
    cache_creation: JsonObject = counted.get("cache_creation") or {}
    return Usage(
        counted.get("input_tokens") or 0,
        counted.get("output_tokens") or 0,
        counted.get("cache_read_input_tokens") or 0,
        counted.get("cache_creation_input_tokens") or 0,
        cache_creation.get("ephemeral_1h_input_tokens") or 0,
    )


def part_of(block: JsonObject) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "tool_use":
            return ToolCall(block["id"], block["name"], block["input"])
        case _:
            return Thinking(block)
