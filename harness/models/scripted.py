"""A model that replies from a script and records the requests it received."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.messages.message import Message, Part, Text
from harness.messages.model_request import ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Emit, TextArrived

ScriptedReply = str | Sequence[Part] | ModelFailure | Callable[[ModelRequest], "ScriptedReply"]
"""A reply's text, its parts, a failure, or a function of the request that returns one of these."""


class ScriptedModel:
    def __init__(self, *lines: ScriptedReply, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._lines = list(lines)

    def script(self, *lines: ScriptedReply) -> None:
        """Replace the remaining script."""
        self._lines = list(lines)

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        del output_tokens_max
        self.requests.append(request)
        line = (
            self._lines.pop(0) if self._lines else ModelFailure("broken", "the script is over", "")
        )
        while callable(line):
            line = line(request)
        if isinstance(line, ModelFailure):
            return line
        parts = (Text(line),) if isinstance(line, str) else tuple(line)
        message = Message("assistant", parts)
        if message.text:
            emit(TextArrived(message.text))
        return Reply(message, Usage(input=_size(request), output=len(message.text)))


def _size(request: ModelRequest) -> int:
    return sum(len(text) for text in request.system) + sum(len(m.text) for m in request.messages)
