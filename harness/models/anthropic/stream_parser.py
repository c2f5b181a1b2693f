"""An answer of the provider's as it comes, event by event.

The SDK can put answers together itself; here it is done strictly, because three things that it lets pass
or makes unusable matter to us. A stream that is cut raises nothing there: here only an answer whose
`message_stop` came is whole. The input of a tool call that is no JSON throws the whole answer away there,
text and all: here it becomes a call that the tool will refuse, so that the model can put it right. And
what was used up is known here at every moment, also when the answer is cancelled or cut.
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
        self._has_begun = False
        self._blocks: list[JsonObject] = []
        self._pieces: list[list[str]] = []

    def take(self, event: JsonObject) -> str | None:
        """The text that this event adds to what the model says. ValueError, LookupError, AttributeError or
        TypeError for nonsense."""
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
            return self._add(self._blocks[index], self._pieces[index], event["delta"])
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason")
            self.stop_details = {**(event["delta"].get("stop_details") or {})}
            self._count(event["usage"])
        elif kind == "message_stop":
            self.is_whole = True
        return None

    def blocks(self) -> list[JsonObject]:
        """The content as the provider takes it back."""
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
        """Thinking that was cut before its signature came is left out by the caller: the provider takes
        it back from nobody."""
        if field := _TEXT_OF_BLOCK.get(block["type"]):
            return {**block, field: block.get(field, "") + added}
        if "input" in block and added:
            return {**block, "input": _input(added)}
        return block

    def _count(self, counted: JsonObject) -> None:
        """Counts are of the whole answer so far; one that is not repeated still holds."""
        before = self.usage
        kept: JsonObject = counted.get("cache_creation") or {}
        self.usage = Usage(
            _newest(counted.get("input_tokens"), before.input),
            _newest(counted.get("output_tokens"), before.output),
            _newest(counted.get("cache_read_input_tokens"), before.cache_read),
            _newest(counted.get("cache_creation_input_tokens"), before.cache_write),
            _newest(kept.get("ephemeral_1h_input_tokens"), before.cache_write_hour),
        )


def _newest(counted: int | None, before: int) -> int:
    return before if counted is None else counted


def _input(text: str) -> JsonObject:
    try:
        stated = parse_json(text, within="input")
    except Refused:
        return {INVALID_JSON: text}
    return cast(JsonObject, stated) if isinstance(stated, dict) else {INVALID_JSON: text}


def usage_of_answer(counted: JsonObject | None) -> Usage:
    """Of one that the SDK has put together."""
    if counted is None:
        return NO_USAGE
    kept: JsonObject = counted.get("cache_creation") or {}
    return Usage(
        counted.get("input_tokens") or 0,
        counted.get("output_tokens") or 0,
        counted.get("cache_read_input_tokens") or 0,
        counted.get("cache_creation_input_tokens") or 0,
        kept.get("ephemeral_1h_input_tokens") or 0,
    )


def part_of(block: JsonObject) -> Part:
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "tool_use":
            return ToolCall(block["id"], block["name"], block["input"])
        case _:
            return Thinking(block)
