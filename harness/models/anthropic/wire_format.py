"""The notation of Claude's provider, for whoever asks it with a client of their own."""

from __future__ import annotations

from harness.messages.message import Message
from harness.messages.model_request import ModelRequest, Reply
from harness.models.anthropic.model import parameters
from harness.models.anthropic.stream_parser import part_of, usage_of_answer
from workspaces.storage.records import JsonObject

_NO_MATTER = 1
"""How many tokens may come out is for the caller to say."""


class AnthropicNotation:
    def question(self, model: str, request: ModelRequest) -> JsonObject:
        return parameters(model, request, _NO_MATTER)

    def reply(self, data: JsonObject) -> Reply:
        parts = tuple(part_of(block) for block in data["content"])
        reason = data.get("stop_reason")
        is_complete = reason in {None, "tool_use", "end_turn", "stop_sequence"}
        return Reply(Message("assistant", parts), usage_of_answer(data.get("usage")), is_complete)
