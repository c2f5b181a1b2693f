"""What a server refuses, as the failures that the same calls raise in process.

Each is of that type, so that whoever catches one need not know where the home is. What it knows of the
matter is what the server says: a sentence, the field, how long to wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from workspaces.errors import (
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
"""The server, or what stands before it, cannot answer just now."""


class ServerFailure(Failure):
    """A server said no. `status` 0: it did not answer this call, but an event has come to this."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 0,
        field: str | None = None,
        remedy: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        Failure.__init__(self, message, remedy=remedy)
        self.code = code
        self.status = status
        self.field = field
        self.retry_after_s = retry_after_s


_TYPES: dict[str, type[ServerFailure]] = {
    kind.code: cast("type[ServerFailure]", type(kind.__name__, (ServerFailure, kind), {}))
    for kind in _KINDS
}


def refusal_of(status: int, headers: Mapping[str, str], body: bytes) -> ServerFailure:
    """Of an answer with an error status."""
    seconds = headers.get("retry-after", "")
    retry_after_s = float(seconds) if seconds.isdecimal() else None
    error = _error(body)
    if error is None:  # somebody stands before the server, and says no in words of their own
        code = "unavailable" if status in OUT_OF_REACH else "failure"
        message = f"the server answered with the status {status}"
        return _made(code, message, status=status, retry_after_s=retry_after_s)
    told = {"status": status, "field": error.get("field"), "retry_after_s": retry_after_s}
    return _made(error["code"], error["message"], **told)


def given_back(error: Mapping[str, Any]) -> ServerFailure:
    """Of an event that was refused when its turn came."""
    return _made(error["code"], error["message"], remedy=error.get("remedy"))


def unreachable(url: str, reason: str) -> Unavailable:
    """No answer came, or only the beginning of one."""
    failure = _made("unavailable", f"{url}: {reason}", remedy="see whether `harness up` runs there")
    return cast("Unavailable", failure)


def _made(code: str, message: str, **told: Any) -> ServerFailure:
    return _TYPES.get(code, ServerFailure)(message, code=code, **told)


def _error(body: bytes) -> dict[str, Any] | None:
    try:
        error = json.loads(body)["error"]
        return error if error["code"] and error["message"] else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
