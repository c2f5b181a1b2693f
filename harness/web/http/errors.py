"""The error table of the HTTP API: the status, headers and body of each failure.

The body of every error is `{"error": {code, message, field?, lines?}}`, and for the routes of facts
`{"success": false, "error": message}`. A missing resource and a resource that the caller may not see have the
same body, byte for byte. The body does not repeat the requested name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from harness.memorize.memory import EditedMemory
from workspaces.errors import (
    Busy,
    Conflict,
    Exhausted,
    Failure,
    Forbidden,
    ForbiddenText,
    LeaseLost,
    LinesChanged,
    NotFound,
    OverLimit,
    Refused,
    TooMany,
    Unauthorized,
    Unavailable,
    Undecided,
    WorkspaceBusy,
)
from workspaces.validation import StrictModel

RETRY_AFTER_S = 2
"""Seconds that a caller should wait while another caller holds the resource."""

ENVELOPED = re.compile(r"/api/(?:agents|workspaces)/[^/]+/memories(?:/|\Z)")
"""Paths that begin so have their errors in an envelope (`envelope`), as their answers."""

Headers = Mapping[str, str]

_NO_HEADERS: Headers = MappingProxyType({})
_CLOSES: Headers = MappingProxyType({"Connection": "close"})


_SOON: Headers = MappingProxyType({"Retry-After": str(RETRY_AFTER_S)})

_TABLE: tuple[tuple[type[Failure], int, Headers], ...] = (
    (Unauthorized, 401, MappingProxyType({"WWW-Authenticate": "Bearer"})),
    (Forbidden, 403, _NO_HEADERS),
    (NotFound, 404, _NO_HEADERS),
    (Conflict, 409, _NO_HEADERS),
    (LeaseLost, 409, _NO_HEADERS),
    (TooMany, 429, _SOON),
    (OverLimit, 413, _CLOSES),
    (ForbiddenText, 422, _NO_HEADERS),
    (Refused, 400, _NO_HEADERS),
    (WorkspaceBusy, 503, _SOON),
    (Unavailable, 503, _SOON),
    (Busy, 409, _SOON),  # a conversation in which a turn runs
)
"""The first row whose type matches decides."""


class Json(JSONResponse):
    """A JSON response. Bytes that are not UTF-8, as in a file name, are escaped."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")


class ErrorLine(StrictModel):
    """A line that was rewritten since."""

    path: str
    line: int | None
    """Its number in the present file. Null if the line is not there any more."""
    text: str


class ErrorDetail(StrictModel):
    """The description of an error."""

    code: str
    """A stable code, for programs."""
    message: str
    """A sentence for people, with the remedy."""
    field: str | None = None
    """The refused part of the request, as in `config.workspaces.0.name`."""
    lines: list[ErrorLine] | None = None
    """The lines that stand in the way of an undo."""
    memory: dict[str, Any] | None = None
    """The memory that a person has edited, and that was not replaced."""


class ErrorBody(StrictModel):
    error: ErrorDetail


class HttpFailure(Failure):
    """A refusal that only exists over HTTP. It has its own status."""

    status = 400
    headers = _NO_HEADERS

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Malformed(HttpFailure):
    """A request that this server cannot read."""

    code = "invalid"


class NotHere(HttpFailure):
    """The path names no resource, or the resource does not support the method."""

    def __init__(self, status: int, code: str, message: str, headers: Headers) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


class WrongHost(HttpFailure):
    status, code = 421, "host_not_allowed"


class WrongOrigin(HttpFailure):
    status, code = 403, "origin_not_allowed"


class TooManyHeaders(HttpFailure):
    status, code = 431, "too_many_headers"
    headers = _CLOSES


class TooSlow(HttpFailure):
    status, code = 408, "too_slow"
    headers = _CLOSES


class NotJson(HttpFailure):
    status, code = 415, "not_json"


class Crowded(HttpFailure):
    status, code = 503, "busy"
    headers = MappingProxyType({"Connection": "close", "Retry-After": str(RETRY_AFTER_S)})


class Stale(HttpFailure):
    """A failed precondition: the file has another version than the request says."""

    status, code = 412, "conflict"


def path_of(scope: Scope) -> str:
    """Return the path of a request within this app, which may be mounted in another one."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def refused(failure: Failure, path: str = "") -> Json:
    """Return the response for a failure. `path` is the path of the request, if there is one."""
    status, headers = _outcome(failure)
    if ENVELOPED.match(path):
        return Json({"success": False, "error": _sentence(failure)}, status, dict(headers))
    field: str | None = getattr(failure, "field", None)
    error = {"code": failure.code, "message": _sentence(failure)}
    lines = [line.as_json() for line in failure.lines] if isinstance(failure, LinesChanged) else []
    more: dict[str, Any] = {
        **({"field": field} if field else {}),
        **({"lines": lines} if lines else {}),
        **({"memory": failure.memory.as_json()} if isinstance(failure, EditedMemory) else {}),
    }
    return Json({"error": {**error, **more}}, status, dict(headers))


def broken(path: str = "") -> Json:
    """Return the response for a bug of this program. The log has the details under the request's id."""
    message = "Internal error. The server's log has the details under this X-Request-Id."
    if ENVELOPED.match(path):
        return Json({"success": False, "error": message}, 500)
    return Json({"error": {"code": "bug", "message": message}}, 500)


_ASYNC = "With `Prefer: respond-async`, a write without a condition is kept here and sent later."


def _outcome(failure: Failure) -> tuple[int, Headers]:
    match failure:
        case HttpFailure():
            return failure.status, failure.headers
        case Exhausted():
            return 429, {"Retry-After": str(ceil(failure.free_in_s))}
        case _:
            rows = (row for row in _TABLE if isinstance(failure, row[0]))
            _, status, headers = next(rows, (Failure, 500, _NO_HEADERS))
            return status, headers


def _sentence(failure: Failure) -> str:
    if isinstance(failure, NotFound):
        return f"there is no such {failure.what}"
    if isinstance(failure, Busy):  # the process id means nothing on another machine
        return f"{failure.what} is in use by {failure.holder}; {failure.remedy}"
    if isinstance(failure, Undecided):
        store = failure.store or "the store"
        return f"{store[:1].upper()}{store[1:]}: {failure.reason}; {failure.remedy}. {_ASYNC}"
    if isinstance(failure, Unavailable) and failure.store:
        return f"{failure.store[:1].upper()}{failure.store[1:]}: {failure.reason}. Try again later."
    if isinstance(failure, Unavailable):  # `what` is left out: it may be a path on our disk
        return f"{failure.reason[:1].upper()}{failure.reason[1:]}. Try again later."
    if not failure.remedy:
        return str(failure)
    separator = " " if str(failure).endswith(".") else "; "
    return f"{failure}{separator}{failure.remedy}"
