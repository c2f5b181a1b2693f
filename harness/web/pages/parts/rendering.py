"""Render a page: its template, the frame around it, and the headers that every page has.

Every value in a template is text and is escaped. Markup comes from three places only: the templates,
`when` below, and `markdown.rendered`, whose output has passed an allow-list.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.runtime.templates import root as template_root
from harness.web.http.caller import address_of, application_of, session_of
from harness.web.http.errors import Malformed
from workspaces.file import size_text
from workspaces.timestamp import Stamp, moment_of

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    # with `no-referrer` a browser would send `Origin: null` with a form
    "Referrer-Policy": "same-origin",
}

_TOKEN_OF = b"form of a page"


@dataclass(frozen=True, slots=True)
class Frame:
    """What surrounds each page: who reads it, where it lies, and what was just done."""

    root: str
    """The path under which the app is mounted; empty if it is not."""
    user: str | None
    """The name of the reader; None if nobody is signed in."""
    may_configure: bool
    is_session: bool
    """True if the reader has a session that can be ended."""
    token: str
    """The token that a form of this page carries."""
    place: str
    """The path of this page, without the query."""
    said: str
    """The code of the notice about what was just done."""
    undo: str
    """The revision that undoes it."""
    has_keys: bool
    """False on a server without keys, which makes none."""
    is_owner: bool = False
    """True if the reader acts as the account's owner, as whom all runs act."""


def shown(
    request: Request,
    name: str,
    *,
    caller: PrincipalServices | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **variables: Any,
) -> Response:
    """Return the answer that shows a page."""
    query = request.query_params
    frame = Frame(
        root=address_of(request, ""),
        user=caller.principal.user.name if caller else None,
        may_configure=bool(caller and caller.principal.may_configure),
        is_session=caller is not None and session_of(request) is not None,
        token=form_token(request),
        place=request.url.path,
        has_keys=request.app.state.asks_for_keys,
        said=query.get("said", ""),
        undo=query.get("undo", ""),
        is_owner=caller is not None and is_owner(caller),
    )
    now = application_of(request).clock.now()
    html = (
        _environment()
        .get_template(f"pages/{name}")
        .render(
            frame=frame,
            root=frame.root,
            when=partial(when, now=now),
            **variables,
        )
    )
    body = html.encode(errors="backslashreplace")  # a file name may hold bytes that are not UTF-8
    return HTMLResponse(body, status, {**HEADERS, **(headers or {})})


def is_owner(caller: PrincipalServices) -> bool:
    """Return True if the caller may see runs, which act as the account's owner."""
    principal = caller.principal
    return principal.may_configure and principal.user_id == principal.owner.id


def led_to(request: Request, path: str, /, **query: str | int | None) -> Response:
    """Return the answer after a form: go to another page with GET (303). Absent values are left out."""
    return RedirectResponse(address_of(request, link(path, **query)), 303)


def link(path: str, /, **query: str | int | None) -> str:
    """Return a path, encoded, with a query of all values that are there."""
    stated = {name: value for name, value in query.items() if value not in (None, "")}
    encoded = quote(path, safe="/:@!$&'()*+,;=~-._", errors="surrogateescape")
    return f"{encoded}?{urlencode(stated)}" if stated else encoded


def form_token(request: Request) -> str:
    """Return the token of this session's forms. Empty without a session: then no cookie speaks for anyone."""
    try:
        session_id = session_of(request)
    except Malformed:
        return ""
    if session_id is None:
        return ""
    return hmac.new(session_id.encode(errors="replace"), _TOKEN_OF, "sha256").hexdigest()


def when(at: str, *, now: datetime) -> Markup:
    """Return a stamp as a reader says it, with the exact time as its title."""
    moment = moment_of(Stamp(at))
    exact = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at, exact, _relative(moment, now)
    )


def _relative(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    if seconds < -60:  # a clock ahead, or something that is due
        return _ahead(-seconds, moment, now)
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h ago"
    days = (now.date() - moment.date()).days
    if days <= 1:
        return "yesterday"
    if days < 14:
        return f"{days} days ago"
    return _date(moment, now)


def _ahead(seconds: float, moment: datetime, now: datetime) -> str:
    if seconds < 3600:
        return f"in {int(seconds // 60)} min"
    if seconds < 86_400:
        return f"in {int(seconds // 3600)} h"
    days = (moment.date() - now.date()).days
    if days <= 1:
        return "tomorrow"
    return f"in {days} days" if days < 14 else _date(moment, now)


def _date(moment: datetime, now: datetime) -> str:
    return f"{moment.day} {moment:%b}" + ("" if moment.year == now.year else f" {moment.year}")


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def dollars(amount: float) -> str:
    """Return an amount of dollars. Small amounts keep the digits that make them comparable."""
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}".rstrip("0").rstrip(".")


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment: Any = Environment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        auto_reload=False,  # otherwise every render would check the files' modification times
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters.update(size=size_text, count=count, dollars=dollars)
    environment.globals.update(link=link)
    return environment
