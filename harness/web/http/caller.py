"""Who is calling: from a key or a cookie to the rooms of a principal.

A platform that knows its callers already gives `create_app` an `authenticate` of its own; everything
behind it is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request, Security
from fastapi.security import HTTPBearer

from harness.bootstrap.authentication import Access
from harness.bootstrap.composition import Application, PrincipalServices
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.fair_share import take_share_of
from harness.web.http.errors import Malformed, WrongOrigin
from workspaces.accounts.account import Principal
from workspaces.errors import Unauthorized
from workspaces.workspace.workspace import Workspace

Authenticate = Callable[[Request], Awaitable[Principal | None]]
"""From a request to whom it comes from; None when that is nobody."""

SAFE_METHODS = frozenset({"GET", "HEAD"})

USER_HEADER = "X-Harness-User"

documented_bearer = Security(
    HTTPBearer(auto_error=False, description="A key of the account (`wh_…`) or a user (`whu_…`).")
)
"""For the document alone; the secret is read by `secret_of`."""


def by_secret(access: Access) -> Authenticate:
    """Whoever holds a key, or the start token, itself or as the cookie it was exchanged for."""

    async def authenticate(request: Request) -> Principal:
        secret = secret_of(request)
        if secret is None:
            raise Unauthorized
        return await run_in_thread(access.principal_of, secret, as_user=_named_user(request))

    return authenticate


def secret_of(request: Request) -> str | None:
    """The bearer's, else the cookie's: a header that is there but wrong is not made good by a cookie.

    A cookie comes with whatever a browser sends, so where something is changed the browser must also
    say from where it sends it; that it is from here, the guard has seen to.
    """
    stated = request.headers.get("authorization")
    if stated is not None:
        scheme, _, secret = stated.partition(" ")
        return (secret.strip() or None) if scheme.lower() == "bearer" else None
    cookie = request.cookies.get(cookie_name(request))
    if cookie and request.method not in SAFE_METHODS and "origin" not in request.headers:
        raise WrongOrigin("a request with a cookie must say its Origin", field="Origin")
    return cookie or None


def _named_user(request: Request) -> str | None:
    """A platform's own ids are text, and headers are bytes: UTF-8, as everywhere else."""
    stated = request.headers.get(USER_HEADER)
    try:
        return None if stated is None else stated.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"{USER_HEADER} is no UTF-8 text", field=USER_HEADER) from error


def cookie_name(request: Request) -> str:
    """With the port: browsers give the cookies of one name to all of its ports, and two homes that
    run side by side shall not take each other's."""
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
    """The path of a route as its caller knows it: the app may be a part of another one."""
    return f"{request.scope.get('root_path', '')}{path}"


def application_of(request: Request) -> Application:
    return request.app.state.house


def access_of(request: Request) -> Access:
    return request.app.state.access


Caller = Annotated[PrincipalServices, Depends(services_of)]


async def _workspace(caller: Caller, workspace_id: Annotated[str, Path(alias="id")]) -> Workspace:
    return await run_in_thread(caller.workspaces.reach, workspace_id)


CallerWorkspace = Annotated[Workspace, Depends(_workspace)]
"""The workspace that the path names, if it is one that the caller may open."""
