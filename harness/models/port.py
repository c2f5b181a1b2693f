"""The port of models: one request, one reply."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from harness.messages.model_request import ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit


class Model(Protocol):
    """Asks a provider for the next message. Keeps nothing between requests.

    What the provider does wrong comes back as a `ModelFailure`; only bugs and cancellation raise.
    """

    @property
    def name(self) -> str: ...

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure: ...


@runtime_checkable
class Foreseeing(Protocol):
    """A model that makes use of knowing a question a moment sooner."""

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        """`reply` will be called for this in a moment, by the same event loop, or it will not. Until then
        nobody may learn what is asked."""
        ...


def foresee(model: Model, request: ModelRequest, *, output_tokens_max: int) -> None:
    """Told to a model that has a use for it."""
    if isinstance(model, Foreseeing):
        model.foresee(request, output_tokens_max=output_tokens_max)
