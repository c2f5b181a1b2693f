"""The SDK's own client, connected to a spawned `harness mcp` or to a real port, in both eras."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.harness.cli.terminal import COMMAND
from tests.harness.web.serving import Home, Server

Transport = Literal["stdio", "http"]
Era = Literal["legacy", "auto"]
T = TypeVar("T")

WAIT_S = 120.0


@dataclass(frozen=True)
class Place:
    """A home, and a server of it."""

    home: Home
    server: Server

    def connected(
        self, transport: Transport, era: Era, *, key: str | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Client]:
        if transport == "http":
            return over_http(self.server.url, key or self.server.key, era, **options)
        return over_stdio(self.home, era, **options)


@asynccontextmanager
async def over_stdio(
    home: Home, era: Era, *arguments: str, variables: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[Client]:
    process = StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], "mcp", *arguments],
        env=home.terminal.environment(**(variables or {})),
    )
    async with Client(process, mode=era, read_timeout_seconds=WAIT_S, **options) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, key: str, era: Era, **options: Any) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=WAIT_S) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=WAIT_S, **options) as client:
            yield client


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run the coroutine in a loop of its own, for a bounded time."""

    async def bounded() -> T:
        return await asyncio.wait_for(work(), WAIT_S)

    return asyncio.run(bounded())


def text_of(result: CallToolResult) -> str:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return part.text


def bytes_of(result: CallToolResult) -> int:
    return len(
        json.dumps(result.model_dump(mode="json", by_alias=True), ensure_ascii=False).encode()
    )
