"""The provider's HTTP clients: one for each event loop, open until the loop ends.

A new client costs a TLS context (tens of milliseconds), and its first request a handshake. An open client
sends its next request over an open connection. But connections belong to their event loop, and a loop does
not report its end. So a task of the loop owns the client. Every proper end of a loop (`asyncio.run`, a
server's, `LoopThread.close`) cancels the remaining tasks and waits for them, so the loop itself closes the
client. `close` is for loops that continue to run.
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
EVENT_GAP_S_MAX = 120.0
"""Seconds between two events of a stream; the provider sends a ping every 15 seconds."""


class AnthropicClients:
    """The clients of one key and address. The SDK's own retries are off: it sleeps through any `retry-after`,
    even an hour, without reporting it, and never retries an answer that breaks within a stream."""

    def __init__(
        self, api_key: str, base_url: str | None = None, *, event_gap_s: float = EVENT_GAP_S_MAX
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._event_gap_s = event_gap_s
        self._open_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _OpenClient] = (
            WeakKeyDictionary()
        )

    def of_running_loop(self) -> Any:
        """Return the `AsyncAnthropic` of the running loop. The caller must not close it."""
        loop = asyncio.get_running_loop()
        entry = self._open_clients.get(loop)
        if entry is None or entry.owner_task.done():
            client = self._create_client()
            entry = _OpenClient(
                client, loop.create_task(_close_at_end(client), name="anthropic-client")
            )
            self._open_clients[loop] = entry
        return entry.client

    def close(self) -> None:
        """Close the clients of all loops that still run. Any thread may call this."""
        for loop, entry in list(self._open_clients.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(entry.owner_task.cancel)

    @cached_property
    def unusable(self) -> ModelFailure | None:
        """Return the failure if no request can be sent at all. The SDK would report a failing network, or
        raise."""
        import httpx2

        if not (self._api_key.isascii() and self._api_key.isprintable()):
            return wrong_key("ANTHROPIC_API_KEY contains a character that is not allowed in a key")
        try:
            url = httpx2.URL(self._base_url or BASE_URL)
            is_address = url.scheme in {"http", "https"} and bool(url.host)
        except (httpx2.InvalidURL, ValueError):
            is_address = False
        if is_address:
            return None
        return no_address(f"{self._base_url!r} is not the address of a provider")

    def _create_client(self) -> Any:
        import anthropic
        import httpx2

        return anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url or BASE_URL,
            max_retries=0,
            timeout=httpx2.Timeout(self._event_gap_s, connect=CONNECT_S_MAX),
        )


class _OpenClient:
    def __init__(self, client: Any, owner_task: asyncio.Task[None]) -> None:
        self.client = client
        self.owner_task = owner_task


async def _close_at_end(client: Any) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await client.close()
