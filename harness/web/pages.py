"""The web pages: the landing page with the login, and the page that documents the API.

A user logs in with the address that `harness up` prints. The token in the address becomes a cookie, which no
script can read and no other site can send. The response redirects at once, so that the token stays in no
browser history.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from harness.runtime.async_bridge import run_in_thread
from harness.runtime.templates import page, page_file
from harness.web.http.caller import access_of, address_of, application_of, cookie_name, services_of
from harness.web.http.errors import NotHere
from harness.web.http.route import Route
from workspaces.errors import Failure, Unauthorized

router = APIRouter(route_class=Route, include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

_ASSETS = {
    "style.css": "text/css; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@router.get("/", response_model=None)
async def landing(request: Request, token: str | None = None) -> Response:
    if token is not None:
        return await _log_in(request, token)
    try:
        services = await services_of(request)
    except Unauthorized:
        return _shown(request, "door.html", 401, was_token=False)
    except Failure as failure:
        return _shown(request, "door.html", 403, was_token=False, reason=str(failure))
    return _shown(
        request,
        "landing.html",
        user=services.principal.user.name,
        home=application_of(request).settings.home.root,
        workspaces=await run_in_thread(services.workspaces.list),
        agents=await run_in_thread(services.agents.list),
    )


@router.get("/docs", response_model=None)
async def docs(request: Request) -> Response:
    """Show the API documentation. It only uses /openapi.json and loads nothing else, so it works offline."""
    return _shown(request, "docs.html")


@router.get("/assets/{name}", response_model=None)
async def asset(name: str) -> Response:
    if name not in _ASSETS:
        raise NotHere(404, "not_found", "there is no such page", {})
    headers = {"Cache-Control": "no-cache"}
    return Response(page_file(name), headers=headers, media_type=_ASSETS[name])


async def _log_in(request: Request, token: str) -> Response:
    """Exchange a token for a cookie and redirect to the landing page."""
    try:
        await run_in_thread(access_of(request).principal_of, token)
    except Unauthorized:
        return _shown(request, "door.html", 401, was_token=True)
    answer = RedirectResponse(address_of(request, "/"), 303)
    answer.set_cookie(
        cookie_name(request),
        token,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return answer


def _shown(request: Request, name: str, status: int = 200, **variables: object) -> Response:
    return HTMLResponse(page(name, root=address_of(request, ""), **variables), status, HEADERS)
