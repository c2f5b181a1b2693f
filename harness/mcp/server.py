"""The MCP server: the protocol's lists and calls, answered from the tools, resources and the prompt here.

It is built on the SDK's low-level server, because that one leaves the check of arguments to us: unknown ones
are refused, and no value is converted. The same server serves both eras of the protocol. Who asks is decided
per request by `caller_of`, so one server serves many principals over HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from harness.mcp import resource
from harness.mcp.caller import McpCaller
from harness.mcp.notices import Notices
from harness.mcp.tool import AnyMcpTool, McpCall, OnProgress, refusal
from harness.mcp.tools import TOOLS
from harness.presentation.workspace_prompt import workspace_prompt
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.templates import render
from harness.tools.port import as_text
from workspaces.errors import Failure, nearest

NAME = "workspace-harness"
PROMPT = "memory"
PROGRESS_S = 0.2
"""Shortest time between two reports of progress."""

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Awaitable[McpCaller]]


class McpServer:
    """The handlers of the protocol. `server` is the SDK's object that a transport serves."""

    def __init__(
        self,
        caller_of: CallerOf,
        *,
        has_connections: bool,
        tools: tuple[AnyMcpTool, ...] = TOOLS,
    ) -> None:
        """Create the server. `has_connections` is False where each request stands alone: then no client of
        the older era is promised a notice."""
        self._caller_of = caller_of
        self._tools = {tool.name: tool for tool in tools}
        self.notices = Notices()
        self._listen = ListenHandler(self.notices.bus)
        subscribing: dict[str, Any] = {}
        if has_connections:
            subscribing = {
                "on_subscribe_resource": self._subscribe,
                "on_unsubscribe_resource": self._unsubscribe,
            }
        self.server = Server[Any](
            NAME,
            title="Memory of workspaces",
            version=version(NAME),
            instructions=render("mcp/instructions.md"),
            lifespan=self._lifespan,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=self._listening,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            **subscribing,
        )
        self.server.extensions = {
            "io.modelcontextprotocol/ui": {"mimeTypes": [resource.APP_MIME_TYPE]}
        }

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self.notices.looking():
            yield {}

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=[tool.described() for tool in self._tools.values()])

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            names = list(self._tools)
            near = nearest(params.name, names)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(names)}"
            return refusal(f"There is no tool {params.name[:100]!r}; {hint}")
        try:
            caller = await self._caller(context)
        except Failure as failure:
            return refusal(as_text(failure))
        return await tool.call(params.arguments, McpCall(caller, _progress_of(context)))

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = None if params is None else params.cursor
        return await self._answer(context, resource.page, cursor)

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del context, params
        return resource.template()

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await self._answer(context, resource.read, params.uri)

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        del context, params
        argument = types.PromptArgument(
            name="workspace", description="Name or id of the workspace.", required=False
        )
        prompt = types.Prompt(
            name=PROMPT,
            title="The memory of a workspace",
            description=render("mcp/prompt.md"),
            arguments=[argument],
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        arguments = params.arguments or {}
        unknown = [name for name in arguments if name != "workspace"]
        if params.name != PROMPT or unknown:
            what = f"argument {unknown[0]!r}" if unknown else f"prompt {params.name[:100]!r}"
            raise MCPError(types.INVALID_PARAMS, f"There is no {what}.")
        text = await self._answer(context, _prompt_text, arguments.get("workspace"))
        message = types.PromptMessage(
            role="user", content=types.TextContent(type="text", text=text)
        )
        return types.GetPromptResult(description=render("mcp/prompt.md"), messages=[message])

    async def _subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        session = context.session
        caller = await self._caller(context)
        try:
            await self.notices.add(
                params.uri, caller, _token(context), session.send_resource_updated
            )
        except Failure as failure:
            raise _protocol_error(failure) from failure
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self.notices.remove(params.uri, _token(context))
        return types.EmptyResult()

    async def _listening(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of notices. The files it names are watched as long as it is open."""
        wanted = params.notifications
        uris = list(wanted.resource_subscriptions or ())
        token = object()
        caller = await self._caller(context)
        try:
            for uri in uris:
                await self.notices.add(uri, caller, token, _untold)
            if wanted.resources_list_changed:
                await self.notices.add_list(caller, token)
            return await self._listen(context, params)
        except Failure as failure:
            raise _protocol_error(failure) from failure
        finally:
            self.notices.remove_list(token)
            for uri in uris:
                self.notices.remove(uri, token)

    async def _caller(self, context: Context) -> McpCaller:
        caller = await self._caller_of(context)
        stated = context.session.client_params
        if stated is None:
            return caller
        return caller.of_client(f"{stated.client_info.name} {stated.client_info.version}".strip())

    async def _answer(self, context: Context, answer: Callable[..., Any], *arguments: Any) -> Any:
        """Answer in a thread. A failure is an error of the protocol."""
        try:
            caller = await self._caller(context)
            return await run_in_thread(answer, caller, *arguments)
        except Failure as failure:
            raise _protocol_error(failure) from failure


def _prompt_text(caller: McpCaller, reference: str | None) -> str:
    workspace = caller.workspace(reference)
    workspace.edits.commit()
    services = caller.services
    parts = workspace_prompt(workspace, services.clock, facts=services.facts.indexes)
    return "\n\n".join(part.text for part in parts)


def _protocol_error(failure: Failure) -> MCPError:
    return MCPError(types.INVALID_PARAMS, as_text(failure), {"code": failure.code})


def _token(context: Context) -> object:
    """Return a token for the connection of a subscription."""
    return id(context.session.client_params)


async def _untold(uri: str) -> None:
    """Tell nobody: the stream hears of it by the bus."""
    del uri


def _progress_of(context: Context) -> OnProgress:
    """Return a callback that reports progress to the client from any thread, never going back."""
    loop = asyncio.get_running_loop()
    last = (float("-inf"), float("-inf"))

    def report(done: float, total: float, message: str) -> None:
        nonlocal last
        now = time.monotonic()
        if done <= last[0] or (done < total and now - last[1] < PROGRESS_S):
            return
        last = (done, now)
        asyncio.run_coroutine_threadsafe(
            context.session.report_progress(done, total, message), loop
        )

    return report
