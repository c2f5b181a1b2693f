"""A model with the faults that providers have, for tests of how callers cope with them.

A plan decides which request meets which fault: any iterator, or one drawn from a seed. After the plan has
ended the wrapped model answers unchanged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from harness.messages.message import INVALID_JSON, Message, ToolCall
from harness.messages.model_request import NO_USAGE, FailureKind, ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit, Progress, TextArrived
from harness.models.port import Model
from harness.models.retrying import Pause


@dataclass(frozen=True, slots=True)
class Fails:
    """A fault: no answer. The provider is overloaded, unreachable, or limits the rate and may ask to wait."""

    kind: FailureKind = "overloaded"
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class BreaksOff:
    """A fault: the answer is cut after some characters of its text. Its usage is billed."""

    after: int = 5


@dataclass(frozen=True, slots=True)
class Malforms:
    """A fault: the inputs of the tool calls are not valid JSON."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A fault: the answer begins after a delay."""

    seconds: float = 1.0


ModelFault = Fails | BreaksOff | Malforms | Slow

RATE_LIMITED = Fails("overloaded", wait_s=2.0)
OVERLOADED = Fails("overloaded")


def seeded(seed: int, *, share: float = 0.3) -> Iterator[ModelFault | None]:
    """Yield faults without end. `share` is the part of the requests that meet a fault."""
    dice = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
    faults: list[ModelFault] = [
        RATE_LIMITED,
        OVERLOADED,
        Fails("unreachable"),
        BreaksOff(),
        Slow(0.01),
    ]
    while True:
        yield dice.choice(faults) if dice.random() < share else None


class FaultyModel:
    def __init__(
        self, model: Model, plan: Iterator[ModelFault | None], *, pause: Pause = asyncio.sleep
    ) -> None:
        self._model = model
        self._plan = plan
        self._pause = pause

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        async def answer(emit: Emit) -> Reply | ModelFailure:
            return await self._model.reply(request, output_tokens_max=output_tokens_max, emit=emit)

        fault = next(self._plan, None)
        match fault:
            case None:
                return await answer(emit)
            case Fails(kind, wait_s):
                return ModelFailure(kind, "a fault was planned here", "try again", NO_USAGE, wait_s)
            case BreaksOff(after):
                result = await answer(_only(after, emit))
                reason = "its answer broke off, as planned"
                return ModelFailure("broken", reason, "send the message again", result.usage)
            case Malforms():
                return _malformed(await answer(emit))
            case Slow(seconds):
                await self._pause(seconds)
                return await answer(emit)
            case _:
                assert_never(fault)


def _only(characters: int, emit: Emit) -> Emit:
    left = characters

    def cut(progress: Progress) -> None:
        nonlocal left
        if isinstance(progress, TextArrived):
            text, left = progress.text[:left], max(0, left - len(progress.text))
            progress = TextArrived(text, progress.part)
            if not text:
                return
        emit(progress)

    return cut


def _malformed(result: Reply | ModelFailure) -> Reply | ModelFailure:
    if isinstance(result, ModelFailure):
        return result
    parts = tuple(
        replace(part, input={INVALID_JSON: '{"path": oops'}) if isinstance(part, ToolCall) else part
        for part in result.message.parts
    )
    return replace(result, message=Message("assistant", parts))
