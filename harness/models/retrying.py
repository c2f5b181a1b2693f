"""A wrapper of the model port that retries temporary failures.

The caller is told about each wait and its length. The provider's own wish counts, up to the time that a
person would wait; beyond that the failure is returned. If an answer breaks off after text was streamed, that
text is withdrawn and the answer begins again. Half an answer helps no one, and a failed turn costs more than
a repeated request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from harness.messages.model_request import NO_USAGE, FailureKind, ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit, Progress, TextArrived, Waiting, Withdrawn
from harness.models.port import Model

TRIES_MAX: dict[FailureKind, int] = {"overloaded": 6, "unreachable": 4, "broken": 4}
"""Tries for each kind of failure: half a minute for an overloaded provider, seven seconds for a network or an
answer that fails. The first usually passes by itself, the others often do not. Other kinds never pass."""

WAIT_S_MAX = 60.0
"""The longest wait that a provider may ask for. Rate limits are counted by the minute."""

Pause = Callable[[float], Awaitable[object]]


class RetryingModel:
    def __init__(self, model: Model, *, pause: Pause = asyncio.sleep) -> None:
        self._model = model
        self._pause = pause

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        usage, attempt = NO_USAGE, 0
        while True:
            attempt += 1
            progress_filter = _ProgressFilter(emit)
            result = await self._model.reply(
                request, output_tokens_max=output_tokens_max, emit=progress_filter.emit
            )
            usage += result.usage
            if isinstance(result, Reply) or attempt >= TRIES_MAX.get(result.kind, 1):
                return replace(result, usage=usage)
            seconds = _wait_s(result, attempt)
            if seconds > WAIT_S_MAX:
                return replace(_too_long_to_wait(result, seconds), usage=usage)
            if progress_filter.has_text:
                emit(Withdrawn())
            emit(Waiting(result.reason, seconds))
            await self._pause(seconds)


class _ProgressFilter:
    """A filter that passes progress on and records whether text was among it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.has_text = False

    def emit(self, progress: Progress) -> None:
        self.has_text = self.has_text or isinstance(progress, TextArrived)
        self._emit(progress)


def _wait_s(failure: ModelFailure, attempt: int) -> float:
    if failure.wait_s is not None:
        return failure.wait_s
    return 0.5 * 2**attempt * random.uniform(0.75, 1.0)  # noqa: S311 - spreads the retries


def _too_long_to_wait(failure: ModelFailure, seconds: float) -> ModelFailure:
    duration = f"{seconds:.0f} seconds" if seconds < 86_400 else "more than a day"
    return replace(
        failure, reason=f"{failure.reason} and asks to wait {duration}", remedy="try again then"
    )
