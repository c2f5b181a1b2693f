"""Reading what a caller sends: counted while it comes, timed, and parsed once.

The declared length is believed only where it refuses. A body that turns out too large is read on for a
while and thrown away, because a server that hangs up while it is being talked to is not heard: many
callers send all before they read. A body that comes too slowly is given up.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from harness.web.refusal import Malformed, NotJson, TooSlow
from workspaces.errors import OverLimit, Refused

JSON_BYTES_MAX = 10 * 2**20
"""A message to an agent may hold ten million characters; records are far smaller and have their own
limits."""

JSON_DEPTH_MAX = 64
"""Far deeper than anything that is configured, far from what recursion can take."""

DISCARDED_BYTES_MAX = 16 * 2**20
"""How much of a body is read beyond its limit, so that its sender hears the refusal."""

BYTES_PER_S_MIN = 16 * 1024
"""Slower than any line that people use, and fast enough to end what only wants to stay."""

JsonObject = dict[str, Any]

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


async def read_json(request: Request) -> JsonObject:
    """A body that is one JSON object."""
    stated = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if stated not in _JSON_TYPES:
        raise NotJson("send JSON, with Content-Type: application/json", field="Content-Type")
    body = await read_body(request, bytes_max=JSON_BYTES_MAX, what="the body")
    parsed = parse_json(body)
    if not isinstance(parsed, dict):
        raise Refused("body", body[:40], "must be a JSON object")
    return cast(JsonObject, parsed)


Fields = Annotated[JsonObject, Depends(read_json)]
"""Parsed and nothing more: what may stand in it, the record's shape says."""


def parse_json(body: bytes) -> Any:
    """Refused for what is no JSON, is too deep, or says one thing twice."""
    try:
        parsed = json.loads(body, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # also bytes that are no UTF-8, and numbers of thousands of digits
        raise Malformed(f"the body is no JSON: {error}", field="body") from error
    _check_depth(parsed)
    return parsed


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(twice, None, "is stated twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _check_depth(parsed: Any) -> None:
    level = [parsed]
    for _ in range(JSON_DEPTH_MAX):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise _too_deep()


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(JsonObject, value).values())
    return cast(list[Any], value) if isinstance(value, list) else []


def _too_deep() -> Malformed:
    return Malformed(f"the body is nested deeper than {JSON_DEPTH_MAX} levels", field="body")


def _declared_length(request: Request) -> int:
    stated = request.headers.get("content-length", "0")
    return int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 20 else 0


def _is_worth_hearing(request: Request, declared: int, bytes_max: int) -> bool:
    """Whoever waits for `100 Continue` is not sending yet and hears a refusal at once."""
    waits = request.headers.get("expect", "").lower() == "100-continue"
    return not waits and declared <= bytes_max + DISCARDED_BYTES_MAX


def _over(what: str, bytes_max: int, size: int) -> OverLimit:
    return OverLimit(f"size of {what}", maximum=bytes_max, actual=size, unit="bytes")
