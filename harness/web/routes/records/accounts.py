"""Routes of accounts. The operator of the home creates accounts; their own keys change and delete them."""

from __future__ import annotations

from fastapi import APIRouter, Request

from harness.bootstrap.composition import Application
from harness.runtime.async_bridge import run_in_thread
from harness.web.http.body import Fields, JsonObject, read_json
from harness.web.http.caller import Caller, access_of, application_of, documented_bearer, secret_of
from harness.web.http.errors import Json
from harness.web.http.record_routes import new_schema
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    answers,
    patch_of,
    refusals,
    takes,
)
from workspaces.accounts.account import AccountRecord
from workspaces.errors import Unauthorized

router = APIRouter(
    route_class=Route,
    prefix="/accounts",
    tags=["accounts"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

NEW = new_schema(AccountRecord, "ownerId")


class AccountWithKey(AccountRecord):
    """A new account, with its first key."""

    key: str


EXAMPLE: JsonObject = {
    "id": "acct_6f1e2d3c4b5a69788796a5b4",
    "name": "acme",
    "ownerId": "usr_0c1d2e3f4a5b6c7d8e9f0a1b",
    "createdAt": "2026-11-18T14:03:18.875130Z",
    "updatedAt": "2026-11-18T14:03:18.875130Z",
}


@router.post(
    "",
    summary="Create an account",
    status_code=201,
    responses={
        **answers(
            AccountWithKey,
            {**EXAMPLE, "key": "wh_…"},
            status=201,
            description="`key` is the account's first key. It is shown here and never again.",
        ),
        **refusals(409, *READING_JSON),
    },
    openapi_extra=takes(NEW, {"name": "acme"}),
)
async def create_account(request: Request) -> Json:
    """Create an account. The bearer is the home's admin key: the file `admin.key`, or HARNESS_ADMIN_KEY."""
    secret = secret_of(request)
    if secret is None or not await run_in_thread(access_of(request).is_admin, secret):
        raise Unauthorized
    fields = await read_json(request)
    return await run_in_thread(_create, application_of(request), fields)


@router.get(
    "/me",
    summary="Show the account",
    responses=answers(AccountRecord, EXAMPLE),
)
def show_account(caller: Caller) -> Json:
    return Json(caller.account.get().as_json())


@router.patch(
    "/me",
    summary="Change the account",
    responses={**answers(AccountRecord, EXAMPLE), **refusals(409, *READING_JSON)},
    openapi_extra=takes(patch_of(NEW), {"config": {"users": {"autocreate": False}}}, patch=True),
)
def change_account(caller: Caller, patch: Fields) -> Json:
    """Apply a JSON merge patch (RFC 7396)."""
    return Json(caller.account.patch(patch).as_json())


@router.delete(
    "/me",
    summary="Delete the account",
    responses={**answers(DeletionDocument, {"deleted": True}), **refusals(409)},
)
def delete_account(caller: Caller) -> Json:
    """Delete the account with its users, keys, agents, workspaces and conversations.

    The request is refused while a turn runs. The rest can then be deleted later with the same key.
    """
    caller.deletion.account()
    return Json({"deleted": True})


def _create(application: Application, fields: JsonObject) -> Json:
    account = application.accounts.add(fields)
    services = application.rooms(application.accounts.owner(account))
    _, key = services.keys.create(label="first")
    return Json({**account.as_json(), "key": key}, 201)
