"""The preference `respond-async` of a request (RFC 7240): a caller that does not wait for S3.

Where several servers share the records, S3 decides every write. If it does not answer, a write is refused
with 503. With this preference, a write that states no condition is kept on this server, answered 202, and
sent later.
"""

from __future__ import annotations

from starlette.datastructures import Headers

from harness.web.http.route_docs import TEXT

APPLIED = {"Preference-Applied": "respond-async"}

PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`respond-async`: if S3 does not answer, keep the write on this server and send it later.",
    "schema": TEXT,
}


def may_wait(headers: Headers) -> bool:
    """Return True if the caller takes a write that S3 has not decided yet."""
    preferences = ",".join(headers.getlist("Prefer")).split(",")
    return any(one.partition(";")[0].strip().lower() == "respond-async" for one in preferences)
