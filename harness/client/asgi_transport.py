"""A server in this very process: an app is asked without a socket, and what it streams comes as it is sent.

It is begun with the first question and ended with the client, as a server does it, so that what the app does
beside its answers (turns that nobody waits for, jobs) is done. For an app that nobody else serves.
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
"""As ASGI has it."""

URL = "http://localhost"
"""The name by which the app is called: every server answers to it."""


class AsgiTransport(httpx2.AsyncBaseTransport):
    def __init__(self, app: App) -> None:
        self._app = app
        self._life: _Life | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._life is None:
            self._life = _Life(self._app)
        await self._life.begun
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
        return await exchange.answered(self._app, scope)

    async def aclose(self) -> None:
        if self._life is not None:
            await self._life.end()


class _Exchange(httpx2.AsyncByteStream):
    """One question and its answer, which is a stream to whoever reads it."""

    def __init__(self, body: bytes) -> None:
        self._asked: list[AsgiMessage] = [
            {"type": "http.request", "body": body, "more_body": False}
        ]
        self._sent: asyncio.Queue[AsgiMessage | None] = asyncio.Queue(maxsize=1)
        self._is_left = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def answered(self, app: App, scope: MutableMapping[str, Any]) -> httpx2.Response:
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
        """Whoever has asked is gone."""
        self._is_left.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _next(self) -> AsgiMessage:
        message = await self._sent.get()
        if message is None:
            raise httpx2.RemoteProtocolError("the app broke off in the middle of its answer")
        return message

    async def _run(self, app: App, scope: MutableMapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._sent.put)
        finally:
            if not self._is_left.is_set():
                await self._sent.put(None)

    async def _receive(self) -> AsgiMessage:
        if self._asked:
            return self._asked.pop()
        await self._is_left.wait()
        return {"type": "http.disconnect"}


class _Life:
    """The app's, from its startup to its shutdown."""

    def __init__(self, app: App) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
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
            if self.begun.done():
                raise
            self.begun.set_exception(problem)

    async def _receive(self) -> AsgiMessage:
        if self._starts:
            return self._starts.pop()
        await self._ends.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: AsgiMessage) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self.begun.set_result(None)
            case "lifespan.startup.failed":
                told = message.get("message") or "it does not start"
                self.begun.set_exception(httpx2.ConnectError(told))
            case _:
                pass
