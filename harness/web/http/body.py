"""Reading what a caller sends: counted while it comes, timed, and parsed once.

The declared length is believed only where it refuses. A body that turns out too large is read on for a
while and thrown away, because a server that hangs up while it is being talked to is not heard: many
callers send all before they read. A body that comes too slowly is given up.
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
"""A message to an agent may hold ten million characters; records are far smaller and have their own
limits."""

LARGE_BYTES = 256 * 1024
"""A body beyond it is parsed and validated in a thread; for a smaller one that is no gain."""

DISCARDED_BYTES_MAX = 16 * 2**20
"""How much of a body is read beyond its limit, so that its sender hears the refusal."""

BYTES_PER_S_MIN = 16 * 1024
"""Slower than any line that people use, and fast enough to end what only wants to stay."""

T = TypeVar("T")

_JSON_TYPES = ("", "application/json", "application/merge-patch+json")


async def read_body(request: Request, *, bytes_max: int, what: str) -> bytes:
    """The whole body; OverLimit when it is larger than `bytes_max`, TooSlow when it does not come."""
    declared = _declared_length(request)
    if declared > bytes_max and not _is_worth_hearing(request, declared, bytes_max):
        raise _over(what, bytes_max, declared)
    body = bytearray()
    size = 0
    loop = asyncio.get_running_loop()
    begun, patience_s = loop.time(), cast(float, request.app.state.patience.body_s)
    try:
        async with asyncio.timeout(patience_s) as timer:
            async for chunk in request.stream():
                size += len(chunk)
                if size <= bytes_max:
                    body += chunk
                elif size > bytes_max + DISCARDED_BYTES_MAX:
                    break
                timer.reschedule(begun + patience_s + size / BYTES_PER_S_MIN)
    except TimeoutError as error:
        raise TooSlow("the body of the request did not come in time") from error
    if size > bytes_max:
        raise _over(what, bytes_max, size)
    return bytes(body)


def read_as(make: Callable[[JsonObject], T]) -> Callable[[Request], Awaitable[T]]:
    """Return a dependency that reads a JSON object and gives what `make` makes of it.

    `make` runs where the body is parsed: for a large one in a thread, so that the loop goes on meanwhile.
    """

    async def read(request: Request) -> T:
        _check_type(request)
        body = await read_body(request, bytes_max=JSON_BYTES_MAX, what="the body")
        if len(body) > LARGE_BYTES:
            return await run_in_thread(_made, body, make)
        return _made(body, make)

    return read


read_json = read_as(lambda fields: fields)

Fields = Annotated[JsonObject, Depends(read_json)]
"""Parsed and nothing more: what may stand in it, the record's shape says. For routes that run in threads."""


def _check_type(request: Request) -> None:
    stated = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if stated not in _JSON_TYPES:
        raise NotJson("send JSON, with Content-Type: application/json", field="Content-Type")


def _made(body: bytes, make: Callable[[JsonObject], T]) -> T:
    parsed = parse_json(body, within="body")
    if not isinstance(parsed, dict):
        raise Refused("body", body[:40], "must be a JSON object")
    return make(cast(JsonObject, parsed))


def _declared_length(request: Request) -> int:
    stated = request.headers.get("content-length", "0")
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 20 else 0


def _is_worth_hearing(request: Request, declared: int, bytes_max: int) -> bool:
    """Whoever waits for `100 Continue` is not sending yet and hears a refusal at once."""
    waits = request.headers.get("expect", "").lower() == "100-continue"
    return not waits and declared <= bytes_max + DISCARDED_BYTES_MAX


def _over(what: str, bytes_max: int, size: int) -> OverLimit:
    return OverLimit(f"size of {what}", maximum=bytes_max, actual=size, unit="bytes")
