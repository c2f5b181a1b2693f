"""The outermost layer of the app: the first to see a request and the last to see its response.

A request gets an id and passes the origin check before anything else. HEAD is handled as GET without a body.
A response gets security headers, which keep a browser from running its content, and one line in the log. A
request that fails with a bug gets 500, and the log has the traceback. No log line holds a query, a raw path
or a part of a body: the route is enough.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.runtime.json_log import event
from harness.web.http.errors import Malformed, broken, path_of, refused
from harness.web.http.no_auth import check_is_open
from harness.web.http.origin_check import OriginCheck
from workspaces.clock import Clock
from workspaces.errors import Failure
from workspaces.ids import new_id

GONE = 499
"""Status in the log only: the caller disconnected before there was an answer."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_log = logging.getLogger("harness.web")


class HttpMiddleware:
    def __init__(
        self, app: ASGIApp, *, guard: OriginCheck, clock: Clock, asks_for_keys: bool = True
    ) -> None:
        self._app = app
        self._guard = guard
        self._asks_for_keys = asks_for_keys
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        inner: Scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else {**scope}
        inner["state"] = {**scope.get("state", {}), "request_id": _request_id(scope)}
        answer = _Answer(inner["state"]["request_id"], scope["method"] == "HEAD", send)
        start = self._clock.monotonic()
        error: BaseException | None = None
        try:
            await self._answer(inner, receive, answer)
        except ClientDisconnect:
            answer.status = answer.status or GONE
        except asyncio.CancelledError as cancelled:
            error = cancelled
            raise
        except Exception as bug:  # noqa: BLE001 - the last error table of the API
            error = bug
            if answer.status is None:
                await broken(path_of(inner))(inner, receive, answer.send)
        finally:
            took_ms = round(1000 * (self._clock.monotonic() - start), 1)
            self._log_request(scope["method"], inner, answer, took_ms, error)

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            scope["scheme"] = self._guard.check(scope).scheme
            _check_path(scope)
            if not self._asks_for_keys:
                check_is_open(path_of(scope))
        except Failure as failure:
            await refused(failure, path_of(scope))(scope, receive, answer.send)
            return
        await self._app(scope, receive, answer.send)

    def _log_request(
        self, method: str, scope: Scope, answer: _Answer, ms: float, error: BaseException | None
    ) -> None:
        principal = scope["state"].get("principal")
        facts: dict[str, Any] = {
            "id": answer.request_id,
            "method": method,
            "route": getattr(scope.get("route"), "path", None),
            "status": answer.status,
            "ms": ms,
            "bytes": answer.bytes,
            "account": getattr(principal, "account_id", None),
            "user": getattr(principal, "user_id", None),
        }
        if error is not None:
            facts["error"] = error
        level = logging.ERROR if isinstance(error, Exception) else logging.INFO
        event(_log, "request", level=level, **facts)


class _Answer:
    """The response of a request, with its status and size for the log."""

    def __init__(self, request_id: str, is_head: bool, send: Send) -> None:
        self.request_id = request_id
        self.status: int | None = None
        self.bytes = 0
        self._is_head = is_head
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            headers["X-Request-Id"] = self.request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        elif message["type"] == "http.response.body":
            self.bytes += len(message.get("body", b""))
            if self._is_head:
                message = {**message, "body": b""}
        await self._send(message)


def _request_id(scope: Scope) -> str:
    """Return the caller's request id, so that the caller finds its request in the log, or a new id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return value.decode("latin-1")
    return new_id("req")


def _check_path(scope: Scope) -> None:
    """Raise Malformed if the path is not UTF-8. It would be decoded as the path of another file."""
    if "�" in scope["path"]:
        try:
            unquote_to_bytes(scope.get("raw_path", b"")).decode()
        except UnicodeDecodeError as error:
            raise Malformed("the path is not UTF-8 text", field="path") from error
