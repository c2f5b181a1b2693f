"""A model that is asked again when what failed may pass: a wrapper of the port.

Whoever waits is told, and for how long. The provider's own word counts as far as a person would wait;
beyond that the failure is the answer. When text was told before the answer broke off, it is withdrawn
aloud and the answer begins anew: half an answer is no use to anyone, and a turn that failed costs more
than a repeated question.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from harness.messages.model_request import NO_USAGE, FailureKind, ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit, Progress, TextArrived, Waiting, Withdrawn
from harness.models.port import Foreseeing, Model, foresee

TRIES_MAX: dict[FailureKind, int] = {"overloaded": 6, "unreachable": 4, "broken": 4}
"""Half a minute of patience with a provider that is overloaded, seven seconds with a network or an answer
that fails: the first passes by itself, the others often do not. Other kinds never pass."""

WAIT_S_MAX = 60.0
"""Rate limits are counted by the minute."""

Pause = Callable[[float], Awaitable[object]]


class RetryingModel(Foreseeing):
    def __init__(self, model: Model, *, pause: Pause = asyncio.sleep) -> None:
        self._model = model
        self._pause = pause

    @property
    def name(self) -> str:
        return self._model.name

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        foresee(self._model, request, output_tokens_max=output_tokens_max)

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        usage, attempt = NO_USAGE, 0
        while True:
            attempt += 1
            heard = _Heard(emit)
            result = await self._model.reply(
                request, output_tokens_max=output_tokens_max, emit=heard.emit
            )
            usage += result.usage
            if isinstance(result, Reply) or attempt >= TRIES_MAX.get(result.kind, 1):
                return replace(result, usage=usage)
            seconds = _wait_s(result, attempt)
            if seconds > WAIT_S_MAX:
                return replace(_too_long_to_wait(result, seconds), usage=usage)
            if heard.text:
                emit(Withdrawn())
            emit(Waiting(result.reason, seconds))
            await self._pause(seconds)


class _Heard:
    """Passes on what is told, and knows whether it was text."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.text = False

    def emit(self, progress: Progress) -> None:
        self.text = self.text or isinstance(progress, TextArrived)
        self._emit(progress)


def _wait_s(failure: ModelFailure, attempt: int) -> float:
    if failure.wait_s is not None:
        return failure.wait_s
    return 0.5 * 2**attempt * random.uniform(0.75, 1.0)  # noqa: S311 - spreads those who wait


def _too_long_to_wait(failure: ModelFailure, seconds: float) -> ModelFailure:
    told = f"{seconds:.0f} seconds" if seconds < 86_400 else "more than a day"
    return replace(
        failure, reason=f"{failure.reason} and asks to wait {told}", remedy="try again then"
    )
