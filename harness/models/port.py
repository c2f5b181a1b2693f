"""The port of models: one request, one reply."""

from __future__ import annotations

from typing import Protocol

from harness.progress import Emit
from harness.request import ModelFailure, Reply, Request


class Model(Protocol):
    """Asks a provider for the next message. Keeps nothing between requests.

    What the provider does wrong comes back as a `ModelFailure`; only bugs and cancellation raise.
    """

    @property
    def name(self) -> str: ...

    async def reply(
        self, request: Request, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure: ...
