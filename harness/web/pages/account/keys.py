"""Keys and users of an account: list, create, revoke, delete. A key is shown once."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.bootstrap.services.principal_services import PrincipalServices
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.records.keys import Id
from workspaces.errors import Forbidden

router = APIRouter(route_class=PageRoute, include_in_schema=False)

ROWS_MAX = 200
"""Rows of a list. An account with more is looked after by programs."""


@router.get("/keys", response_model=None)
def keys_page(request: Request, caller: Caller) -> Response:
    return _keys(request, caller)


@router.post("/keys", response_model=None)
def create_key(request: Request, caller: Caller, form: Form) -> Response:
    """Create a key and show it. This answer is not a redirect: the key must be in no address."""
    user = form.text("user")
    user_id = caller.users.get(user).id if user else None
    expires = form.text("expires")
    _, secret = caller.keys.create(
        label=form.text("label"),
        user_id=user_id,
        expires_at=f"{expires}T00:00:00Z" if expires else None,
    )
    return _keys(request, caller, secret=secret)


@router.post("/keys/{id}/revoke", response_model=None)
def revoke_key(request: Request, caller: Caller, key_id: Id, form: Form) -> Response:
    del form
    caller.keys.revoke(key_id)
    return led_to(request, "/keys", said="revoked")


@router.get("/users", response_model=None)
def users_page(request: Request, caller: Caller) -> Response:
    if not caller.principal.may_configure:
        raise Forbidden("see users")
    users = caller.users.list()
    return shown(
        request,
        "users.html",
        caller=caller,
        users=users[:ROWS_MAX],
        more=max(0, len(users) - ROWS_MAX),
        owner_id=caller.account.get().owner_id,
    )


@router.post("/users", response_model=None)
def create_user(request: Request, caller: Caller, form: Form) -> Response:
    outer = form.text("externalId")
    caller.users.add({"name": form.text("name"), **({"externalId": outer} if outer else {})})
    return led_to(request, "/users", said="created")


@router.post("/users/{id}/delete", response_model=None)
def delete_user(request: Request, caller: Caller, user_id: Id, form: Form) -> Response:
    """Delete a user. Nothing brings a deleted user back, so the form asks for the name."""
    record = caller.users.get(user_id)
    if form.text("name") != record.name:
        return led_to(request, "/users", said="misspelt")
    caller.deletion.user(record.id)
    return led_to(request, "/users", said="removed")


def _keys(request: Request, caller: PrincipalServices, *, secret: str | None = None) -> Response:
    keys = caller.keys.list()
    return shown(
        request,
        "keys.html",
        caller=caller,
        status=200 if secret is None else 201,
        keys=keys[::-1][:ROWS_MAX],
        more=max(0, len(keys) - ROWS_MAX),
        users=caller.users.list()[:ROWS_MAX],
        names={user.id: user.name for user in caller.users.list()},
        secret=secret,
    )
