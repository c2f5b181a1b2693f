"""The table of this face: what each failure is over HTTP.

A body is `{"error": {code, message, field?}}`, whatever went wrong and wherever. What is not there and
what is not the caller's to see have the same body, to the byte: it does not repeat what was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any

from starlette.responses import JSONResponse

from workspaces.errors import (
    Busy,
    Conflict,
    Exhausted,
    Failure,
    Forbidden,
    LeaseLost,
    NotFound,
    OverLimit,
    Refused,
    TooMany,
    Unauthorized,
    Unavailable,
    WorkspaceBusy,
)
from workspaces.validation import StrictModel

RETRY_AFTER_S = 2
"""What a caller is told to wait while somebody else is at work."""

Headers = Mapping[str, str]

_NO_HEADERS: Headers = MappingProxyType({})
_HANGS_UP: Headers = MappingProxyType({"Connection": "close"})


_SOON: Headers = MappingProxyType({"Retry-After": str(RETRY_AFTER_S)})

_TABLE: tuple[tuple[type[Failure], int, Headers], ...] = (
    (Unauthorized, 401, MappingProxyType({"WWW-Authenticate": "Bearer"})),
    (Forbidden, 403, _NO_HEADERS),
    (NotFound, 404, _NO_HEADERS),
    (Conflict, 409, _NO_HEADERS),
    (LeaseLost, 409, _NO_HEADERS),
    (TooMany, 429, _SOON),
    (OverLimit, 413, _HANGS_UP),
    (Refused, 400, _NO_HEADERS),
    (WorkspaceBusy, 503, _SOON),
    (Unavailable, 503, _SOON),
    (Busy, 409, _SOON),  # a conversation, in which a turn runs
)
"""The first that fits."""


class Json(JSONResponse):
    """What is no text in it, as a file name can be, is escaped."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")


class ErrorDetail(StrictModel):
    """What went wrong."""

    code: str
    """Stable, for programs."""
    message: str
    """A sentence for people, with what to do about it."""
    field: str | None = None
    """The part of the request that was refused, as in `config.workspaces.0.name`."""


class ErrorBody(StrictModel):
    error: ErrorDetail


class HttpFailure(Failure):
    """What only this face can refuse: it says its own status."""

    status = 400
    headers = _NO_HEADERS

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Malformed(HttpFailure):
    """No request that this server can read."""

    code = "invalid"


class NotHere(HttpFailure):
    """The path names nothing, or nothing that takes this method."""

    def __init__(self, status: int, code: str, message: str, headers: Headers) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


class WrongHost(HttpFailure):
    status, code = 421, "host_not_allowed"


class WrongOrigin(HttpFailure):
    status, code = 403, "origin_not_allowed"


class TooManyHeaders(HttpFailure):
    status, code = 431, "too_many_headers"
    headers = _HANGS_UP


class TooSlow(HttpFailure):
    status, code = 408, "too_slow"
    headers = _HANGS_UP


class NotJson(HttpFailure):
    status, code = 415, "not_json"


class Crowded(HttpFailure):
    status, code = 503, "busy"
    headers = MappingProxyType({"Connection": "close", "Retry-After": str(RETRY_AFTER_S)})


class Stale(HttpFailure):
    """The file is not what a condition of the request says."""

    status, code = 412, "conflict"


def refused(failure: Failure) -> Json:
    status, headers = _outcome(failure)
    field: str | None = getattr(failure, "field", None)
    error = {"code": failure.code, "message": _sentence(failure)}
    body = {"error": {**error, **({"field": field} if field else {})}}
    return Json(body, status, dict(headers))


def broken() -> Json:
    """For a bug of ours; what it was is in the log, under the id of the request."""
    message = "something went wrong here: the log has more, under this answer's X-Request-Id"
    return Json({"error": {"code": "bug", "message": message}}, 500)


def _outcome(failure: Failure) -> tuple[int, Headers]:
    match failure:
        case HttpFailure():
            return failure.status, failure.headers
        case Exhausted():
            return 429, {"Retry-After": str(ceil(failure.free_in_s))}
        case _:
            found = (row for row in _TABLE if isinstance(failure, row[0]))
            _, status, headers = next(found, (Failure, 500, _NO_HEADERS))
            return status, headers


def _sentence(failure: Failure) -> str:
    if isinstance(failure, NotFound):
        return f"there is no such {failure.what}"
    if isinstance(failure, Busy):  # which of our processes it is helps nobody elsewhere
        return f"{failure.what} is in use by {failure.holder}; {failure.remedy}"
    if isinstance(failure, Unavailable):  # `what` is left out: it may be a path on our disk
        return f"{failure.reason[:1].upper()}{failure.reason[1:]}. Try again later."
    if not failure.remedy:
        return str(failure)
    separator = " " if str(failure).endswith(".") else "; "
    return f"{failure}{separator}{failure.remedy}"
