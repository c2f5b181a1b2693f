"""A transport to a server in this process: it calls an ASGI app without a socket, and streams as the app
sends.

It starts the app with the first request and shuts it down with the client, as a server does. So the app's
background work is done too: turns whose callers do not wait, and jobs. For an app that no other server runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx2

AsgiMessage = MutableMapping[str, Any]
App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[AsgiMessage]],
        Callable[[AsgiMessage], Awaitable[None]],
    ],
    Awaitable[None],
]
"""An application as ASGI defines it."""

URL = "http://localhost"
"""The address of the app: every server answers to this name."""


class AsgiTransport(httpx2.AsyncBaseTransport):
    """A transport that calls an app in this process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lifespan: _Lifespan | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._lifespan is None:
            self._lifespan = _Lifespan(self._app)
        await self._lifespan.started
        exchange = _Exchange(await request.aread())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, request.url.port or 80),
            "client": ("127.0.0.1", 0),
        }
        return await exchange.respond(self._app, scope)

    async def aclose(self) -> None:
        if self._lifespan is not None:
            await self._lifespan.end()


class _Exchange(httpx2.AsyncByteStream):
    """One request and its response, which the reader receives as a stream."""

    def __init__(self, body: bytes) -> None:
        self._requests: list[AsgiMessage] = [
            {"type": "http.request", "body": body, "more_body": False}
        ]
        self._sent: asyncio.Queue[AsgiMessage | None] = asyncio.Queue(maxsize=1)
        self._is_closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def respond(self, app: App, scope: MutableMapping[str, Any]) -> httpx2.Response:
        self._task = asyncio.create_task(self._run(app, scope))
        try:
            start = await self._next()
        except BaseException:
            await self.aclose()
            raise
        return httpx2.Response(start["status"], headers=start["headers"], stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        has_more = True
        while has_more:
            message = await self._next()
            yield message.get("body", b"")
            has_more = message.get("more_body", False)

    async def aclose(self) -> None:
        """End the exchange: the client is gone."""
        self._is_closed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _next(self) -> AsgiMessage:
        message = await self._sent.get()
        if message is None:
            raise httpx2.RemoteProtocolError("the app ended in the middle of its response")
        return message

    async def _run(self, app: App, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._sent.put)
        finally:
            if not self._is_closed.is_set():
                await self._sent.put(None)

    async def _receive(self) -> AsgiMessage:
        if self._requests:
            return self._requests.pop()
        await self._is_closed.wait()
        return {"type": "http.disconnect"}


class _Lifespan:
    """The lifetime of the app, from its startup to its shutdown."""

    def __init__(self, app: App) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self._ends = asyncio.Event()
        self._starts: list[AsgiMessage] = [{"type": "lifespan.startup"}]
        self._task = loop.create_task(self._run(app))

    async def end(self) -> None:
        self._ends.set()
        await self._task

    async def _run(self, app: App) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        try:
            await app(scope, self._receive, self._send)
        except Exception as problem:
            if self.started.done():
                raise
            self.started.set_exception(problem)

    async def _receive(self) -> AsgiMessage:
        if self._starts:
            return self._starts.pop()
        await self._ends.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: AsgiMessage) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self.started.set_result(None)
            case "lifespan.startup.failed":
                error = message.get("message") or "the app does not start"
                self.started.set_exception(httpx2.ConnectError(error))
            case _:
                pass
