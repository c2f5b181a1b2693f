"""Routes of the trash: deleted workspaces of the account that are still on this machine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    answers,
    refusals,
    schema_of,
    takes,
)
from workspaces.errors import Forbidden
from workspaces.home.account_trash import AccountTrash, TrashedWorkspace
from workspaces.home.trash import Why
from workspaces.timestamp import stamp_of
from workspaces.validation import StrictModel, parse
from workspaces.workspace_record import Name, WorkspaceRecord

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["trash"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

PATHS_MAX = 100
"""Paths of one workspace in a list. There may be ten thousand."""


class TrashDocument(StrictModel):
    """A deleted workspace. It is on the machine that answers, and on no other one."""

    id: str
    """Of this deletion. A workspace may have been deleted more than once."""
    workspace_id: str
    name: str
    why: Why
    """Deleted `here`, `elsewhere` by another machine, or `over`: created again since under its id."""
    at: str
    files: int
    bytes: int
    """Of its files and its history."""
    unpushed: list[str]
    """The first hundred files with changes that never left this machine. Empty if private to another user."""
    unpushed_count: int
    is_restorable: bool
    """False if it was private to another user."""


class Restoration(StrictModel):
    """How a deleted workspace comes back."""

    name: Name | None = None
    """A new name. By default the old one."""


EXAMPLE: JsonObject = {
    "id": "2026-11-18T140318.875130Z-fs-5d7e9a1b3c4f60718293a4b5",
    "workspaceId": "ws_9b1f0f3c2a7d4e5b6c7d8e9f",
    "name": "notes",
    "why": "here",
    "at": "2026-11-18T14:03:18.875130Z",
    "files": 12,
    "bytes": 41873,
    "unpushed": [],
    "unpushedCount": 0,
    "isRestorable": True,
}
RESTORED: JsonObject = {
    "id": "ws_0c1d2e3f4a5b6c7d8e9f0a1b",
    "name": "notes",
    "description": "",
    "config": {"harness": {"enabled": True}},
    "createdAt": "2026-11-19T09:12:44.018274Z",
    "updatedAt": "2026-11-19T09:12:44.018274Z",
}
TrashId = Annotated[str, Path(alias="id")]


@router.get(
    "/trash",
    summary="List the deleted workspaces",
    responses=answers(page_model("trash", TrashDocument), whole("trash", [EXAMPLE])),
)
def list_trash(caller: Caller) -> Json:
    """List the deleted workspaces of the account whose files are still on this machine, oldest first."""
    trash = own_trash(caller)
    return Json(whole("trash", (_document(trash, trashed) for trashed in trash.list())))


@router.post(
    "/trash/{id}/restore",
    summary="Restore a deleted workspace",
    status_code=201,
    responses={
        **answers(WorkspaceRecord, RESTORED, status=201),
        **refusals(409, *READING_JSON),
    },
    openapi_extra=takes(schema_of(Restoration), {"name": "older notes"}),
)
def restore_trashed(request: Request, caller: Caller, trash_id: TrashId, fields: Fields) -> Json:
    """Make a new workspace of a deleted one, with its files and its history. It gets a new id."""
    trash = own_trash(caller)
    asked = parse(Restoration, fields)
    record = trash.restore(trash.get(trash_id).name, name=asked.name)
    location = address_of(request, f"/accounts/me/workspaces/{record.id}")
    return Json(record.as_json(), 201, {"Location": location})


@router.delete(
    "/trash/{id}",
    summary="Remove a deleted workspace for good",
    responses={**answers(DeletionDocument, {"deleted": True}), **refusals(409)},
)
def remove_trashed(caller: Caller, trash_id: TrashId) -> Json:
    """Remove the files and the history of a deleted workspace from this machine. Nothing brings them back."""
    own_trash(caller).remove(trash_id)
    return Json({"deleted": True})


def own_trash(caller: Caller) -> AccountTrash:
    """Return the trash of the caller's account.

    Raises: Forbidden for a user's key.
    """
    if not caller.principal.may_configure:
        raise Forbidden("see the trash")
    return caller.trash


def _document(trash: AccountTrash, trashed: TrashedWorkspace) -> JsonObject:
    entry, size = trashed.entry, trashed.size()
    is_readable = trash.is_readable(trashed)
    return {
        "id": trashed.name,
        "workspaceId": entry.id,
        "name": entry.name,
        "why": entry.why,
        "at": stamp_of(trashed.at),
        "files": size.files,
        "bytes": size.bytes,
        "unpushed": list(entry.unpushed[:PATHS_MAX]) if is_readable else [],
        "unpushedCount": len(entry.unpushed),
        "isRestorable": is_readable,
    }
