"""The refusals of a server, as the failures that the same calls raise in process.

Each has the same type, so a caller that catches it need not know where the home is. Its facts are those that
the server sends: a message, the field, how long to wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from workspaces.errors import (
    AgentRunning,
    AlreadyExists,
    Busy,
    Conflict,
    Deleted,
    Exhausted,
    Failure,
    Forbidden,
    InUse,
    LeaseLost,
    NotFound,
    OverLimit,
    Refused,
    TooMany,
    Unauthorized,
    Unavailable,
    WorkspaceBusy,
)

_KINDS: tuple[type[Failure], ...] = (
    AgentRunning,
    AlreadyExists,
    Busy,
    Conflict,
    Deleted,
    Exhausted,
    Forbidden,
    InUse,
    LeaseLost,
    NotFound,
    OverLimit,
    Refused,
    TooMany,
    Unauthorized,
    Unavailable,
    WorkspaceBusy,
)

OUT_OF_REACH = frozenset({502, 503, 504})
"""Statuses with which the server, or a proxy before it, says that it cannot answer just now."""


_NO_BODY: Mapping[str, Any] = MappingProxyType({})


class ServerFailure(Failure):
    """A refusal by a server. `status` 0: the failure of an event, not of this request."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 0,
        field: str | None = None,
        remedy: str | None = None,
        retry_after_s: float | None = None,
        body: Mapping[str, Any] = _NO_BODY,
    ) -> None:
        Failure.__init__(self, message, remedy=remedy)
        self.code = code
        self.status = status
        self.field = field
        self.retry_after_s = retry_after_s
        self.body = body
        """The whole body of the response, for refusals that say more than others."""


_TYPES: dict[str, type[ServerFailure]] = {
    kind.code: cast("type[ServerFailure]", type(kind.__name__, (ServerFailure, kind), {}))
    for kind in _KINDS
}


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> ServerFailure:
    """Return the failure for a response with an error status."""
    seconds = headers.get("retry-after", "")
    retry_after_s = float(seconds) if seconds.isdecimal() else None
    whole = _body(body)
    error = _enveloped(status, body) if whole is None else whole["error"]
    if error is None:  # a proxy before the server refused in a format of its own
        code = "unavailable" if status in OUT_OF_REACH else "failure"
        message = f"the server answered with the status {status}"
        return _failure(code, message, status=status, retry_after_s=retry_after_s)
    facts: dict[str, Any] = {
        "field": error.get("field"),
        "retry_after_s": retry_after_s,
        "body": whole or _NO_BODY,
    }
    return _failure(error["code"], error["message"], status=status, **facts)


def given_back(error: Mapping[str, Any]) -> ServerFailure:
    """Return the failure of an event that was refused when its turn came."""
    return _failure(error["code"], error["message"], remedy=error.get("remedy"))


def unreachable(url: str, reason: str) -> Unavailable:
    """Return the failure for a server that sent no response, or only the beginning of one."""
    failure = _failure(
        "unavailable", f"{url}: {reason}", remedy="check that `harness up` runs there"
    )
    return cast("Unavailable", failure)


def _failure(code: str, message: str, *, status: int = 0, **facts: Any) -> ServerFailure:
    """Return the failure with this code. A code that is not known here has the kind of its status."""
    kind = _TYPES.get(code) or _TYPES.get(_CODES.get(status, ""), ServerFailure)
    return kind(message, code=code, status=status, **facts)


_CODES = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    412: "conflict",
    413: "over_limit",
    422: "invalid",
    429: "too_many",
    503: "unavailable",
}
"""The code of the general failure with a status. The envelope of facts has none of its own."""


def _enveloped(status: int, body: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(message, str):
        return None
    return {"code": _CODES.get(status, "failure"), "message": message}


def _body(body: bytes) -> dict[str, Any] | None:
    """Return the body of a refusal by our server, or None for any other body."""
    try:
        whole = json.loads(body)
        error = whole["error"]
        return whole if error["code"] and error["message"] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
