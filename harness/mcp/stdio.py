"""Serving one client over standard input and output."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from harness.mcp.caller import McpCaller
from harness.mcp.server import McpServer
from harness.mcp.tools import TOOLS
from harness.mcp.tools.local import LOCAL_TOOLS


def serve(caller: McpCaller) -> None:
    """Serve until the client closes our standard input."""
    asyncio.run(_serve(caller))


async def _serve(caller: McpCaller) -> None:
    async def the_caller(_: ServerRequestContext[Any, Any]) -> McpCaller:
        return caller

    server = McpServer(the_caller, has_connections=True, tools=(*TOOLS, *LOCAL_TOOLS)).server
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
