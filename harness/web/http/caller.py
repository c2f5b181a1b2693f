"""Authenticate the caller: from a key or a cookie to the services of a principal.

A platform that already knows its callers passes its own `authenticate` to `create_app`. Everything after
authentication is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPBearer

from harness.bootstrap.authentication import Access
from harness.bootstrap.composition import Application
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.fair_share import take_share_of
from harness.web.http.errors import Malformed, WrongOrigin
from workspaces.accounts.principal import Principal
from workspaces.errors import Unauthorized
from workspaces.workspace.workspace import Workspace

Authenticate = Callable[[Request], Awaitable[Principal | None]]
"""A function that returns the principal of a request, or None if the caller is unknown."""

SAFE_METHODS = frozenset({"GET", "HEAD"})

USER_HEADER = "X-Harness-User"

documented_bearer = Security(
    HTTPBearer(auto_error=False, description="A key of the account (`wh_…`) or a user (`whu_…`).")
)
"""Security scheme for the OpenAPI document only. `secret_of` reads the secret."""


def by_secret(access: Access) -> Authenticate:
    """Return an authentication by a key, by the start token, or by the cookie of a browser's session."""

    async def authenticate(request: Request) -> Principal:
        session_id = session_of(request)
        if session_id is not None:
            find = access.principal_of_session
            return await run_in_thread(find, session_id, as_user=named_user(request))
        secret = secret_of(request)
        if secret is None:
            raise Unauthorized
        return await run_in_thread(access.principal_of, secret, as_user=named_user(request))

    return authenticate


def secret_of(request: Request) -> str | None:
    """Return the secret of the Authorization header, if there is one."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return (secret.strip() or None) if scheme.lower() == "bearer" else None


def session_of(request: Request) -> str | None:
    """Return the id of the browser's session, if the request has no Authorization header.

    A wrong header is not replaced by a cookie. A browser sends the cookie with every request. A request that
    may change data must therefore also have an Origin header. `OriginCheck` has checked that this origin is
    one of the server's own.

    Raises:
        WrongOrigin: a request with a cookie may change data and has no Origin.
    """
    if "authorization" in request.headers:
        return None
    cookie = request.cookies.get(cookie_name(request))
    if cookie and request.method not in SAFE_METHODS and "origin" not in request.headers:
        raise WrongOrigin("A request with a cookie needs an Origin header.", field="Origin")
    return cookie or None


def named_user(request: Request) -> str | None:
    """Return the user that the header names. Ids of a platform are text, and headers are bytes: UTF-8.

    Raises:
        Malformed: the header is not UTF-8.
    """
    header = request.headers.get(USER_HEADER)
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{USER_HEADER} is not UTF-8 text", field=USER_HEADER) from error


def cookie_name(request: Request) -> str:
    """Return the name of the session cookie. It contains the port.

    Browsers send the cookies of a host to all its ports. Two homes that run side by side must not read each
    other's cookies.
    """
    return f"harness-{request.url.port}" if request.url.port else "harness"


async def services_of(request: Request) -> PrincipalServices:
    authenticate: Authenticate = request.app.state.authenticate
    principal = await authenticate(request)
    if principal is None:
        raise Unauthorized
    request.state.principal = principal
    take_share_of(principal.account_id)
    return application_of(request).rooms(principal)


def address_of(request: Request, path: str) -> str:
    """Return the path of a route as the caller knows it. The app may be mounted in another one."""
    return f"{request.scope.get('root_path', '')}{path}"


def application_of(request: Request) -> Application:
    return request.app.state.application


def access_of(request: Request) -> Access:
    return request.app.state.access


Caller = Annotated[PrincipalServices, Depends(services_of)]


async def _workspace(caller: Caller, workspace_id: Annotated[str, Path(alias="id")]) -> Workspace:
    return await run_in_thread(caller.workspaces.reach, workspace_id)


CallerWorkspace = Annotated[Workspace, Depends(_workspace)]
"""The workspace that the path names, if the caller may open it."""
