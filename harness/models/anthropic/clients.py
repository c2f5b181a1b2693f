"""The provider's clients: one for each event loop that asks, kept until the loop ends.

A new client costs a TLS context (tens of milliseconds) and its first question a handshake; one that is
kept asks its next question over an open connection. But connections belong to their event loop, and
nobody tells us when that ends. So a task of the loop keeps the client: every end of a loop that is worth
the name (`asyncio.run`, a server's, `LoopThread.close`) cancels the tasks that are left and waits for
them, and the client is closed by its own loop. `close` is for loops that live on.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from harness.messages.model_request import ModelFailure
from harness.models.anthropic.errors import no_address, wrong_key

BASE_URL = "https://api.anthropic.com"

CONNECT_S_MAX = 10.0
SILENCE_S_MAX = 120.0
"""Between two events of a stream; the provider sends a ping every 15 seconds."""


class AnthropicClients:
    """The SDK is told not to retry: it sleeps through any `retry-after`, an hour too, without a word,
    and never retries what breaks within a stream."""

    def __init__(
        self, api_key: str, base_url: str | None = None, *, silence_s: float = SILENCE_S_MAX
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._silence_s = silence_s
        self._kept: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept] = WeakKeyDictionary()

    def of_running_loop(self) -> Any:
        """An `AsyncAnthropic`; never to be closed by whoever asked for it."""
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        if kept is None or kept.keeper.done():
            client = self._opened()
            kept = _Kept(client, loop.create_task(_keep(client), name="anthropic-client"))
            self._kept[loop] = kept
        return kept.client

    def close(self) -> None:
        """From any thread: every loop that still lives closes its client."""
        for loop, kept in list(self._kept.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(kept.keeper.cancel)

    @cached_property
    def unusable(self) -> ModelFailure | None:
        """What cannot even be sent; the SDK would call it a network that fails, or raise."""
        import httpx2

        if not (self._api_key.isascii() and self._api_key.isprintable()):
            return wrong_key("ANTHROPIC_API_KEY holds a character that no key has")
        try:
            url = httpx2.URL(self._base_url or BASE_URL)
            is_address = url.scheme in {"http", "https"} and bool(url.host)
        except (httpx2.InvalidURL, ValueError):
            is_address = False
        if is_address:
            return None
        return no_address(f"{self._base_url!r} is not the address of a provider")

    def _opened(self) -> Any:
        import anthropic
        import httpx2

        return anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url or BASE_URL,
            max_retries=0,
            timeout=httpx2.Timeout(self._silence_s, connect=CONNECT_S_MAX),
        )


class _Kept:
    def __init__(self, client: Any, keeper: asyncio.Task[None]) -> None:
        self.client = client
        self.keeper = keeper


async def _keep(client: Any) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()
