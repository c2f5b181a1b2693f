"""`/mcp`: the MCP server over HTTP, behind the same keys, checks and limits as every route.

Each request stands alone and is answered as JSON. A cookie does not count here: a client shows its key. A
refusal says `WWW-Authenticate: Bearer`, so that a host asks for a key instead of looking for one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from harness.mcp.caller import NO_CONVERSATIONS, McpCaller
from harness.mcp.server import McpServer
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import services_of
from harness.web.http.errors import refused
from harness.web.http.local_reader import readable_conversations
from workspaces.errors import Failure, Unauthorized

PATH = "/mcp"

BODY_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one request. A file that is written may have 1 MiB, and JSON escapes take room."""


class McpEndpoint:
    """The ASGI endpoint. It authenticates a request, then hands it to the MCP server."""

    def __init__(self) -> None:
        server = McpServer(_caller_of, has_connections=False).server
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=BODY_BYTES_MAX
        )

    def route(self) -> Route:
        return Route(PATH, self, include_in_schema=False)

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if "authorization" not in request.headers:
                raise Unauthorized
            services = await services_of(request)
            local = await run_in_thread(readable_conversations, request, services.principal)
            request.state.mcp_caller = McpCaller(
                services, local_conversations=local or NO_CONVERSATIONS
            )
        except Failure as failure:
            await refused(failure)(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)


async def _caller_of(context: ServerRequestContext[Any, Any]) -> McpCaller:
    request: Any = context.request  # the one that `__call__` made ready
    return request.state.mcp_caller
