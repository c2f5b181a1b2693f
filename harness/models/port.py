"""The model port: one request, one reply."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from harness.messages.model_request import ModelFailure, ModelRequest, Reply
from harness.messages.progress import Emit


class Model(Protocol):
    """A client that asks a provider for the next message. It keeps no state between requests.

    A fault of the provider is returned as a `ModelFailure`. Only bugs and cancellation raise.
    """

    @property
    def name(self) -> str: ...

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure: ...


@runtime_checkable
class Foreseeing(Protocol):
    """A model that can prepare a request before it may be sent."""

    def foresee(self, request: ModelRequest, *, output_tokens_max: int) -> None:
        """Prepare for a call of `reply` with this request, soon and in the same event loop. The call may not
        come. Until it comes, nothing of the request may leave this process."""
        ...


def foresee(model: Model, request: ModelRequest, *, output_tokens_max: int) -> None:
    """Announce the request to the model, if it can prepare requests."""
    if isinstance(model, Foreseeing):
        model.foresee(request, output_tokens_max=output_tokens_max)
