"""The notation of Claude's provider, for callers that send requests with their own client."""

from __future__ import annotations

from harness.messages.message import Message
from harness.messages.model_request import ModelRequest, Reply
from harness.models.anthropic.model import parameters
from harness.models.anthropic.stream_parser import part_of, usage_of_answer
from workspaces.storage.records import JsonObject

_PLACEHOLDER = 1
"""A placeholder: the caller sets the limit of output tokens."""


class AnthropicNotation:
    def question(self, model: str, request: ModelRequest) -> JsonObject:
        return parameters(model, request, _PLACEHOLDER)

    def reply(self, data: JsonObject) -> Reply:
        parts = tuple(part_of(block) for block in data["content"])
        reason = data.get("stop_reason")
        is_complete = reason in {None, "tool_use", "end_turn", "stop_sequence"}
        return Reply(Message("assistant", parts), usage_of_answer(data.get("usage")), is_complete)
