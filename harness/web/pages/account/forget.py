"""Forget a text: say what it is, look where it is, and take it out of everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.forgetting.forgetting import Forgetting
from harness.forgetting.found import FoundPlace, PlaceCount
from harness.forgetting.record_places import Where
from harness.forgetting.selection import ForgettingRequest
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.pages.parts.told import Told, told
from harness.web.routes.records.forgettings import own_forgettings
from harness.web.routes.records.keys import Id
from workspaces.errors import NotFound, OverLimit, Refused
from workspaces.validation import parse

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 200

SELECTORS = ("text", "match", "revision", "conversation")
"""What the form offers. A line is chosen by its text."""

CONVERSATIONS_MAX = 500
"""The newest conversations to which places are linked. Those of other users are not among them."""

KINDS = {
    "file": "files",
    "history": "earlier versions of files",
    "record": "records",
    "conversation": "conversations",
    "queued event": "queued messages",
    "snapshot": "prompts, as they were shown",
    "receipt": "receipts of prompts",
    "large value": "large values",
    "learning": "what was learned",
    "run": "runs",
    "archive": "memorized conversations",
    "index": "search indexes",
    "job": "jobs",
    "trash": "the trash",
    "temporary file": "temporary files",
    "local file": "files of this home",
    "database": "databases",
    "backup": "backups",
    "object": "objects in the bucket",
    "pack": "packs of history in the bucket",
    "version": "older versions in the bucket",
}
"""The kinds of places, as a person calls them."""


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A place, with the page that shows it."""

    subject: str
    link: str
    place: FoundPlace
    count: int


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """The places of one kind."""

    title: str
    rows: Sequence[FoundRow]


@router.get("/forget", response_model=None)
def forget_page(request: Request, caller: Caller) -> Response:
    return _page(request, caller)


@router.post("/forget", response_model=None)
def look_for_text(request: Request, caller: Caller, form: Form) -> Response:
    """Show where a text is. This answer is not a redirect: the text must be in no address."""
    forgettings = own_forgettings(caller)
    try:
        planned = forgettings.plan(_request(form))
    except (Refused, OverLimit, NotFound) as failure:
        is_kind = isinstance(failure, Refused) and failure.field == "selector"
        problem = told(failure, "selector" if is_kind else "what")
        return _page(request, caller, form=form, problem=problem)
    return _page(request, caller, form=form, planned=planned.forgetting)


@router.post("/forget/start", response_model=None)
def forget_text(request: Request, caller: Caller, form: Form) -> Response:
    forgettings = own_forgettings(caller)
    started = forgettings.start(forgettings.plan(_request(form)))
    return led_to(request, f"/forget/{started.id}", said="forgetting")


@router.get("/forget/{id}", response_model=None)
def forgetting_page(request: Request, caller: Caller, forgetting_id: Id) -> Response:
    forgetting = own_forgettings(caller).show(forgetting_id)
    return shown(
        request,
        "forgetting.html",
        caller=caller,
        forgetting=forgetting,
        **_found(caller, forgetting),
    )


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
    planned: Forgetting | None = None,
    problem: Told | None = None,
) -> Response:
    every = own_forgettings(caller).stored.list()
    return shown(
        request,
        "forget.html",
        caller=caller,
        status=problem.status if problem else 200,
        form=form or SentForm({}),
        told=problem,
        planned=planned,
        forgettings=every[:ROWS_MAX],
        more=max(0, len(every) - ROWS_MAX),
        **({} if planned is None else _found(caller, planned)),
    )


def _found(caller: PrincipalServices, forgetting: Forgetting) -> dict[str, Any]:
    """Return the places of a forgetting by their kind, and what may say the same, each with a link."""
    workspaces = {record.name: record.id for record in caller.workspaces.list()}
    conversations = {
        str(one.id): one.key for one in caller.conversations.list(limit=CONVERSATIONS_MAX)
    }

    def row(one: PlaceCount) -> FoundRow:
        place, link = one.place, ""
        workspace = workspaces.get(place.workspace or "")
        if workspace and place.revision:
            link = f"/w/{workspace}/history/{place.revision}"
        elif workspace and place.where == "file":
            link = f"/w/{workspace}/files/{place.path}"
        elif place.conversation in conversations:
            link = f"/c/{place.conversation}"
        conversation = place.conversation or ""
        subject = place.workspace or conversations.get(conversation, conversation)
        return FoundRow(subject, link, place, one.count)

    groups = [
        FoundGroup(
            KINDS.get(where, where),
            [row(one) for one in forgetting.found if one.place.where == where],
        )
        for where in dict.fromkeys(
            (*get_args(Where), *(one.place.where for one in forgetting.found))
        )
    ]
    return {
        "groups": [group for group in groups if group.rows],
        "repeated": [
            (named, f"/runs/{named.removeprefix('run: ')}" if named.startswith("run: ") else "")
            for named in forgetting.may_repeat
        ],
    }
