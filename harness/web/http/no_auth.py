"""Serving without keys, on this machine alone: for trying out, and for programs that know no keys.

Every request acts as the owner of the home's default account. `Host` and `Origin` are checked as always, so
no page of another site gets in. Whatever makes keys or accounts, or serves other agents, is refused: who can
reach the port must not leave with a key that outlives the server.
"""

from __future__ import annotations

import re

from fastapi import Request

from harness.bootstrap.authentication import Access
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.caller import Authenticate, by_secret, named_user, secret_of
from harness.web.http.errors import HttpFailure
from workspaces.accounts.principal import Principal

_CLOSED = re.compile(r"/mcp(/.*)?|/accounts/?|/accounts/me(/users/[^/]*)?/keys(/.*)?|/keys(/.*)?")


class NeedsKeys(HttpFailure):
    """The route is not served by a server without keys."""

    status, code = 403, "no_auth"


def without_keys(access: Access) -> Authenticate:
    """Return an authentication for which every caller is the owner. A caller with a key is who the key
    says."""
    with_key = by_secret(access)

    async def authenticate(request: Request) -> Principal | None:
        if secret_of(request) is not None:
            return await with_key(request)
        return await run_in_thread(access.owner, as_user=named_user(request))

    return authenticate


def check_is_open(path: str) -> None:
    """Raise NeedsKeys for a path that a server without keys does not serve."""
    if _CLOSED.fullmatch(path):
        raise NeedsKeys(
            "This server runs with --no-auth and does not serve this route. "
            "Start `harness up` without --no-auth."
        )
