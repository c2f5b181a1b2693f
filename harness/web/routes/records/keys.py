"""Routes of API keys, which act as an account or as one of its users. A key is shown once."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field

from harness.web.http.body import Fields, JsonObject
from harness.web.http.caller import Caller, access_of, documented_bearer, secret_of
from harness.web.http.errors import Json
from harness.web.http.pagination import page_model, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    Responses,
    answers,
    refusals,
    schema_of,
    takes,
)
from workspaces.accounts.key import LABEL_CHARACTERS_MAX, KeyRecord
from workspaces.errors import Refused
from workspaces.ids import UserId
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/accounts/me",
    tags=["keys"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class NewKey(StrictModel):
    label: Annotated[str, Field(max_length=LABEL_CHARACTERS_MAX)] = ""
    expires_at: (
        Annotated[str, Field(max_length=100, json_schema_extra={"format": "date-time"})] | None
    ) = None


class KeyWithSecret(KeyRecord):
    """A new key, with its secret."""

    key: str


EXAMPLE: JsonObject = {
    "id": "key_5d7e9a1b3c4f60718293a4b5",
    "label": "deployment",
    "createdAt": "2026-11-18T14:03:18.875130Z",
}
_NEW = takes(schema_of(NewKey), {"label": "deployment", "expiresAt": "2099-01-31T12:00:00Z"})
_MADE: Responses = answers(
    KeyWithSecret,
    {**EXAMPLE, "key": "wh_…"},
    status=201,
    description="`key` is the secret. It is shown here and never again.",
)

Id = Annotated[str, Path(alias="id")]


@router.get(
    "/keys",
    summary="List the keys",
    responses=answers(page_model("keys", KeyRecord), whole("keys", [EXAMPLE])),
)
def list_keys(caller: Caller) -> Json:
    """List the keys without their secrets, which are not stored."""
    return Json(whole("keys", (record.as_json() for record in caller.keys.list())))


@router.post(
    "/keys",
    summary="Create a key of the account",
    status_code=201,
    responses={**_MADE, **refusals(*READING_JSON)},
    openapi_extra=_NEW,
)
def create_key(caller: Caller, fields: Fields) -> Json:
    return _with_secret(*_create(caller, fields, None))


@router.delete(
    "/keys/{id}",
    summary="Revoke a key",
    responses=answers(DeletionDocument, {"deleted": True}),
)
def revoke_key(caller: Caller, key_id: Id) -> Json:
    """Revoke a key. It stops working immediately."""
    caller.keys.revoke(key_id)
    return Json({"deleted": True})


@router.post(
    "/users/{id}/keys",
    summary="Create a key of a user",
    status_code=201,
    responses={**_MADE, **refusals(*READING_JSON)},
    openapi_extra=_NEW,
)
def create_user_key(caller: Caller, user: Id, fields: Fields) -> Json:
    """Create a key that acts as the user.

    It may run turns and read the user's own data. It may not change records.
    """
    return _with_secret(*_create(caller, fields, caller.users.get(user).id))


@router.post(
    "/rotate-key",
    summary="Replace the key of this request",
    status_code=201,
    responses=_MADE,
)
def rotate_key(caller: Caller, request: Request) -> Json:
    """Replace the key by one with the same label, user and expiry. The old key stops working immediately."""
    key = access_of(request).key_of(secret_of(request) or "")
    if key is None:
        remedy = "send the key to replace as the bearer"
        raise Refused("Authorization", None, "is not a key of the account", remedy=remedy)
    return _with_secret(*caller.keys.rotate(key.id))


def _with_secret(record: KeyRecord, secret: str) -> Json:
    return Json({**record.as_json(), "key": secret}, 201)


def _create(caller: Caller, fields: JsonObject, user_id: UserId | None) -> tuple[KeyRecord, str]:
    new = parse(NewKey, fields)
    return caller.keys.create(label=new.label, user_id=user_id, expires_at=new.expires_at)
