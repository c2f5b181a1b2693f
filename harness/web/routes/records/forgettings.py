"""Routes of forgettings: a text that must go from everything, and must not come back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from harness.forgetting.forgetting import ForgettingStatus, Selector
from harness.forgetting.forgettings import Forgettings
from harness.forgetting.selection import ForgettingRequest
from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    answers,
    left_out,
    refusals,
    schema_of,
    takes,
)
from workspaces.errors import Forbidden
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["forgettings"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class PlaceDocument(StrictModel):
    """A place in which something was found."""

    where: str
    workspace: str | None = left_out()
    path: str | None = left_out()
    revision: str | None = left_out()
    conversation: str | None = left_out()
    count: int


class UnreachableDocument(StrictModel):
    """A place that cannot be changed, and why."""

    where: str
    why: str


class MachineDocument(StrictModel):
    """A machine of the account. `heardAt` is null until it has heard."""

    id: str
    heard_at: str | None


class ForgettingDocument(StrictModel):
    """A forgetting. Its text is in no field."""

    id: str
    status: ForgettingStatus
    selector: Selector
    by: str
    at: str
    reason: str
    found: list[PlaceDocument]
    count: int
    unreachable: list[UnreachableDocument]
    machines: list[MachineDocument]
    tombstones: list[str]
    may_repeat: list[str]
    conversation: str | None = left_out()
    waits_for: str | None = left_out()
    done_at: str | None = left_out()


NEW: JsonObject = {"text": "the old address is Herrengasse 4", "dryRun": True}
EXAMPLE: JsonObject = {
    "id": "forgetting_5d7e9a1b3c4f60718293a4b5",
    "status": "planned",
    "selector": "text",
    "by": "usr_5d7e9a1b3c4f60718293a4b5",
    "at": "2026-11-18T14:03:18.875130Z",
    "reason": "",
    "found": [{"where": "file", "workspace": "notes", "path": "MEMORY.md", "count": 1}],
    "count": 1,
    "unreachable": [],
    "machines": [],
    "tombstones": ["f_3fa9c1d2"],
    "mayRepeat": [],
}


@router.post(
    "/forgettings",
    summary="Forget a text everywhere",
    status_code=202,
    responses={
        **answers(
            ForgettingDocument,
            EXAMPLE,
            description="With `dryRun`: what was found. Nothing was changed.",
        ),
        **answers(
            ForgettingDocument,
            EXAMPLE,
            status=202,
            description="It was stored, and goes on by itself.",
        ),
        **refusals(*READING_JSON),
    },
    openapi_extra=takes(schema_of(ForgettingRequest), NEW),
)
def create_forgetting(request: Request, caller: Caller, fields: Fields) -> Json:
    """Take a text out of files, their history, conversations, prompts and S3, and refuse it from then on.

    `text` is the text itself, `line` a line of a file, `revision` the lines that a revision added, `match` a
    regular expression, `conversation` an id. Give exactly one. Nothing brings a forgotten text back. A match
    in more than a fifth of all lines needs `many`, a text of one or two short words `forbidShort`. Only the
    account's keys may do this.
    """
    asked = parse(ForgettingRequest, fields)
    forgettings = own_forgettings(caller)
    planned = forgettings.plan(asked)
    if asked.dry_run:
        return Json(planned.forgetting.as_json(), 200)
    started = forgettings.start(planned)
    location = address_of(request, f"/v1/forgettings/{started.id}")
    return Json(started.as_json(), 202, {"Location": location})


@router.get(
    "/forgettings",
    summary="List the forgettings",
    responses=answers(
        page_model("forgettings", ForgettingDocument), whole("forgettings", [EXAMPLE])
    ),
)
def list_forgettings(caller: Caller) -> Json:
    """List the forgettings of the account, newest first. Their texts are nowhere."""
    every = own_forgettings(caller).stored.list()
    return Json(whole("forgettings", (one.as_json() for one in every)))


@router.get(
    "/forgettings/{id}",
    summary="Show a forgetting",
    responses=answers(ForgettingDocument, EXAMPLE),
)
def show_forgetting(caller: Caller, forgetting_id: Annotated[str, Path(alias="id")]) -> Json:
    """Show how far a forgetting is, what it found, and what it cannot reach."""
    return Json(own_forgettings(caller).show(forgetting_id).as_json())


def own_forgettings(caller: Caller) -> Forgettings:
    """Return the forgettings of the caller's account.

    Raises: Forbidden for a user's key.
    """
    if not caller.principal.may_configure:
        raise Forbidden("forget")
    return caller.forgettings
