"""Signing in and out, the documentation page of the API, and the files that pages refer to.

A user signs in with the address that `harness up` prints, or with a key on the sign-in page. The secret is
exchanged for a session, whose id is in a cookie that no script can read. The response redirects at once, so
that a token in an address stays in no browser history.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from harness.bootstrap.browser_session import SESSION_S
from harness.runtime.async_bridge import run_in_thread
from harness.runtime.templates import page_file
from harness.web.http.caller import access_of, address_of, cookie_name, services_of, session_of
from harness.web.http.errors import NotHere
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import shown
from harness.web.pages.parts.route import PageRoute
from workspaces.errors import Failure, Unauthorized

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_ASSETS = {
    "style.css": "text/css; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "forms.js": "text/javascript; charset=utf-8",
    "chat.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@router.get("/sign-in", response_model=None)
async def sign_in_page(request: Request, next: str = "/") -> Response:  # noqa: A002 - as in the address
    return shown(request, "sign-in.html", next=path_on(request, next), reason=None)


@router.post("/sign-in", response_model=None)
async def sign_in(request: Request, form: Form) -> Response:
    return await signed_in(request, form.text("key"), form.text("next") or "/")


@router.post("/sign-out", response_model=None)
async def sign_out(request: Request, form: Form) -> Response:
    del form  # its token was checked
    session_id = session_of(request)
    if session_id is not None:
        await run_in_thread(access_of(request).sessions.end, session_id)
    answer = RedirectResponse(address_of(request, "/sign-in"), 303)
    answer.delete_cookie(cookie_name(request), path="/")
    return answer


@router.get("/docs", response_model=None)
async def docs(request: Request) -> Response:
    """Show the API documentation. It only uses /openapi.json and loads nothing else, so it works offline."""
    try:
        caller = await services_of(request)
    except Failure:  # the API is no secret
        caller = None
    return shown(request, "docs.html", caller=caller)


@router.get("/assets/{name}", response_model=None)
async def asset(name: str) -> Response:
    if name not in _ASSETS:
        raise NotHere(404, "not_found", "there is no such page", {})
    headers = {"Cache-Control": "no-cache"}
    return Response(page_file(name), headers=headers, media_type=_ASSETS[name])


async def signed_in(request: Request, secret: str, path: str) -> Response:
    """Exchange a secret for a session's cookie, and go to a page of this server."""
    target = path_on(request, path)
    try:
        session_id = await run_in_thread(access_of(request).sign_in, secret)
    except Unauthorized:
        reason = "token" if secret and not secret.startswith("wh") else "key"
        return shown(request, "sign-in.html", status=401, next=target, reason=reason)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(
        cookie_name(request),
        session_id,
        max_age=SESSION_S,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
        path="/",
    )
    return answer


def path_on(request: Request, wanted: str) -> str:
    """Return a path of this server. Anything that a browser could take for another server becomes `/`."""
    root = address_of(request, "")
    home = f"{root}/"
    parts = urlsplit(wanted) if wanted.isprintable() else None
    if (
        parts is None
        or parts.scheme
        or parts.netloc
        or "\\" in wanted
        or wanted.startswith("//")
        or not wanted.startswith(home)
    ):
        return home
    return wanted
