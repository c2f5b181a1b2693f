"""Forget a text: say what it is, look where it is, and take it out of everything."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.forgetting.forgettings import Planned
from harness.forgetting.selection import ForgettingRequest
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.records.forgettings import own_forgettings
from harness.web.routes.records.keys import Id
from workspaces.errors import Refused
from workspaces.validation import parse

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 200

SELECTORS = ("text", "match", "revision", "conversation")
"""What the form offers. A line is chosen by its text."""


@router.get("/forget", response_model=None)
def forget_page(request: Request, caller: Caller) -> Response:
    return _page(request, caller)


@router.post("/forget", response_model=None)
def look_for_text(request: Request, caller: Caller, form: Form) -> Response:
    """Show where a text is. This answer is not a redirect: the text must be in no address."""
    planned = own_forgettings(caller).plan(_request(form))
    return _page(request, caller, form=form, planned=planned)


@router.post("/forget/start", response_model=None)
def forget_text(request: Request, caller: Caller, form: Form) -> Response:
    forgettings = own_forgettings(caller)
    started = forgettings.start(forgettings.plan(_request(form)))
    return led_to(request, f"/forget/{started.id}", said="forgetting")


@router.get("/forget/{id}", response_model=None)
def forgetting_page(request: Request, caller: Caller, forgetting_id: Id) -> Response:
    forgetting = own_forgettings(caller).show(forgetting_id)
    return shown(request, "forgetting.html", caller=caller, forgetting=forgetting)


def _request(form: SentForm) -> ForgettingRequest:
    """Return the request of a form.

    Raises: Refused for an unknown kind of selection.
    """
    selector = form.text("selector")
    if selector not in SELECTORS:
        raise Refused("selector", selector, f"must be one of {', '.join(SELECTORS)}")
    asked = form.lines("what") if selector == "text" else form.text("what")
    fields: dict[str, Any] = {selector: asked, "reason": form.text("reason")}
    if form.has("many"):
        fields["many"] = True
    if form.has("short"):
        fields["forbidShort"] = True
    return parse(ForgettingRequest, fields)


def _page(
    request: Request,
    caller: PrincipalServices,
    *,
    form: SentForm | None = None,
    planned: Planned | None = None,
) -> Response:
    every = own_forgettings(caller).stored.list()
    return shown(
        request,
        "forget.html",
        caller=caller,
        form=form,
        planned=None if planned is None else planned.forgetting,
        forgettings=every[:ROWS_MAX],
        more=max(0, len(every) - ROWS_MAX),
    )
