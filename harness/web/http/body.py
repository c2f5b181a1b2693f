"""Read the body of a request: count its bytes, limit its time, and parse it once.

A declared length is only used to refuse a body. If a body turns out to be too large, the server reads on for
a while and discards the rest. Many callers send everything before they read. They would not see a refusal if
the server closed the connection earlier. A body that arrives too slowly is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from harness.runtime.async_bridge import run_in_thread
from harness.runtime.strict_json import parse_json
from harness.web.http.errors import NotJson, TooSlow
from workspaces.errors import OverLimit, Refused
from workspaces.storage.records import JsonObject

JSON_BYTES_MAX = 10 * 2**20
"""Largest JSON body. A message to an agent may have ten million characters. Records are far smaller and
have their own limits."""

LARGE_BYTES = 256 * 1024
"""Size above which a body is parsed and validated in a thread. A smaller body gains nothing from that."""

DISCARDED_BYTES_MAX = 16 * 2**20
"""Bytes of a body that are read beyond its limit, so that the sender can read the refusal."""

BYTES_PER_S_MIN = 16 * 1024
"""Slowest accepted speed of a body. Every real connection is faster; a connection that only wants to stay
open ends."""

T = TypeVar("T")

_JSON_TYPES = ("", "application/json", "application/merge-patch+json")


async def read_body(request: Request, *, bytes_max: int, what: str) -> bytes:
    """Return the whole body. `what` names it in an error.

    Raises:
        OverLimit: the body is larger than `bytes_max`.
        TooSlow: the body does not arrive in time.
    """
    declared = _declared_length(request)
    if declared > bytes_max and not _can_discard_rest(request, declared, bytes_max):
        raise _over(what, bytes_max, declared)
    body = bytearray()
    size = 0
    loop = asyncio.get_running_loop()
    start, timeout_s = loop.time(), cast(float, request.app.state.timeouts.body_s)
    try:
        async with asyncio.timeout(timeout_s) as timer:
            async for chunk in request.stream():
                size += len(chunk)
                if size <= bytes_max:
                    body += chunk
                elif size > bytes_max + DISCARDED_BYTES_MAX:
                    break
                timer.reschedule(start + timeout_s + size / BYTES_PER_S_MIN)
    except TimeoutError as error:
        raise TooSlow("The request body did not arrive in time.") from error
    if size > bytes_max:
        raise _over(what, bytes_max, size)
    return bytes(body)


def read_as(make: Callable[[JsonObject], T]) -> Callable[[Request], Awaitable[T]]:
    """Return a dependency that reads a JSON object and returns the result of `make`.

    `make` runs where the body is parsed. For a large body that is a thread, so that the event loop is free.
    """

    async def read(request: Request) -> T:
        _check_type(request)
        body = await read_body(request, bytes_max=JSON_BYTES_MAX, what="the body")
        if len(body) > LARGE_BYTES:
            return await run_in_thread(_parsed, body, make)
        return _parsed(body, make)

    return read


def read_optional_as(make: Callable[[JsonObject], T]) -> Callable[[Request], Awaitable[T]]:
    """Return a dependency as `read_as` does, for a body that may be missing."""

    async def read(request: Request) -> T:
        body = await read_body(request, bytes_max=JSON_BYTES_MAX, what="the body")
        if not body:
            return make({})
        _check_type(request)
        if len(body) > LARGE_BYTES:
            return await run_in_thread(_parsed, body, make)
        return _parsed(body, make)

    return read


read_json = read_as(lambda fields: fields)

Fields = Annotated[JsonObject, Depends(read_json)]
"""The parsed JSON object, for routes that run in threads. The record's model validates its fields."""


def _check_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _JSON_TYPES:
        raise NotJson("Send JSON, with Content-Type: application/json.", field="Content-Type")


def _parsed(body: bytes, make: Callable[[JsonObject], T]) -> T:
    parsed = parse_json(body, within="body")
    if not isinstance(parsed, dict):
        raise Refused("body", body[:40], "must be a JSON object")
    return make(cast(JsonObject, parsed))


def _declared_length(request: Request) -> int:
    length = request.headers.get("content-length", "0")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else 0


def _can_discard_rest(request: Request, declared: int, bytes_max: int) -> bool:
    """Return True if the body must and can be read to its end before the sender reads the refusal.

    A caller that waits for `100 Continue` has not sent the body yet and reads a refusal at once.
    """
    waits = request.headers.get("expect", "").lower() == "100-continue"
    return not waits and declared <= bytes_max + DISCARDED_BYTES_MAX


def _over(what: str, bytes_max: int, size: int) -> OverLimit:
    return OverLimit(f"size of {what}", maximum=bytes_max, actual=size, unit="bytes")
