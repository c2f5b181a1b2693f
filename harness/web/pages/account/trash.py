"""The trash: deleted workspaces come back under a name, or go for good after it was said what goes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import Caller
from harness.web.http.errors import refused
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.records.keys import Id
from harness.web.routes.records.trash import own_trash
from workspaces.errors import AlreadyExists, NotFound, Refused
from workspaces.home.account_trash import TrashedWorkspace, TrashSize
from workspaces.timestamp import Stamp, stamp_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 200

DAYS_MAX = 3650

PATHS_SHOWN_MAX = 20
"""Changed files that a row names. The rest is counted."""


@dataclass(frozen=True, slots=True)
class TrashRow:
    """A deleted workspace, as the page shows it."""

    trashed: TrashedWorkspace
    size: TrashSize
    at: Stamp
    is_readable: bool
    """False if it was private to another user."""
    unpushed: Sequence[str]
    told: str = ""
    """Why it could not be restored."""
    name: str = ""
    """The name under which it was to come back."""


@router.get("/trash", response_model=None)
def trash_page(request: Request, caller: Caller) -> Response:
    return _page(request, caller)


@router.post("/trash/empty", response_model=None)
def empty_trash(request: Request, caller: Caller, form: Form) -> Response:
    """Show what would go, and remove exactly that once it is confirmed."""
    trash = own_trash(caller)
    if form.text("do") == "remove":
        for name in form.lines("ids").splitlines():
            with suppress(NotFound):  # somebody else has removed or restored it
                trash.remove(name)
        return led_to(request, "/trash", said="removed")
    try:
        days = _days(form.text("days"))
    except Refused as failure:
        return _page(request, caller, days=form.text("days"), days_told=failure.rule)
    return _page(request, caller, going=trash.older_than(timedelta(days=days)), days=str(days))


@router.post("/trash/{id}/restore", response_model=None)
def restore_trashed(request: Request, caller: Caller, trash_id: Id, form: Form) -> Response:
    trash = own_trash(caller)
    trashed = trash.get(trash_id)
    name = form.text("name")
    try:
        record = trash.restore(trashed.name, name=name or None)
    except (AlreadyExists, Refused) as failure:
        return _page(request, caller, failed=trashed.name, name=name, failure=failure)
    return led_to(request, f"/w/{record.id}/files", said="back")


@router.post("/trash/{id}/remove", response_model=None)
def remove_trashed(request: Request, caller: Caller, trash_id: Id, form: Form) -> Response:
    """Remove one for good. If it has changes that are nowhere else, the form asks for the name."""
    trash = own_trash(caller)
    trashed = trash.get(trash_id)
    if trashed.entry.unpushed and form.text("name") != trashed.entry.name:
        return led_to(request, "/trash", said="misspelt")
    trash.remove(trashed.name)
    return led_to(request, "/trash", said="removed")


def _days(text: str) -> int:
    """Return a number of days.

    Raises: Refused for anything else.
    """
    if not (text.isascii() and text.isdigit() and int(text[:5]) <= DAYS_MAX and len(text) < 5):
        raise Refused("days", text, f"must be a whole number of days from 0 to {DAYS_MAX:,}")
    return int(text)


def _page(
    request: Request,
    caller: PrincipalServices,
    *,
    going: Sequence[TrashedWorkspace] | None = None,
    days: str = "30",
    days_told: str = "",
    failed: str = "",
    name: str = "",
    failure: AlreadyExists | Refused | None = None,
) -> Response:
    """Show the trash. `going`: what is to be confirmed. `failed`: what could not be restored, and why."""
    trash = own_trash(caller)
    every = trash.list()[::-1]

    def row(trashed: TrashedWorkspace) -> TrashRow:
        is_readable = trash.is_readable(trashed)
        is_failed = failure is not None and trashed.name == failed
        return TrashRow(
            trashed,
            trashed.size(),
            stamp_of(trashed.at),
            is_readable,
            trashed.entry.unpushed[:PATHS_SHOWN_MAX] if is_readable else (),
            told=str(failure) if is_failed else "",
            name=name if is_failed else trashed.entry.name,
        )

    status = 200 if failure is None else refused(failure).status_code
    return shown(
        request,
        "trash.html",
        caller=caller,
        status=400 if days_told else status,
        rows=[row(one) for one in (every[:ROWS_MAX] if going is None else ())],
        more=max(0, len(every) - ROWS_MAX),
        going=None if going is None else [row(one) for one in going],
        days=days,
        days_told=days_told,
        trash_days=caller.settings.trash_days,
    )
