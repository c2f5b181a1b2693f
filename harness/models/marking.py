"""A wrapper of the model port that puts marks in the place of forbidden texts in a reply.

What was streamed before the reply was whole has reached its readers already. It is not stored.
"""

from __future__ import annotations

from dataclasses import replace

from harness.messages.marking import MarkText, marked_message
from harness.messages.model_request import ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit
from harness.models.port import Model
from harness.runtime.async_bridge import run_in_thread


class MarkingModel:
    def __init__(self, model: Model, mark: MarkText) -> None:
        self._model = model
        self._mark = mark

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        reply = await self._model.reply(request, output_tokens_max=output_tokens_max, emit=emit)
        if isinstance(reply, ModelFailure):
            return reply
        return replace(
            reply, message=await run_in_thread(marked_message, reply.message, self._mark)
        )
