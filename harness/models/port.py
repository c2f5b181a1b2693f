"""The model port: one request, one reply."""

from __future__ import annotations

from typing import Protocol

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
