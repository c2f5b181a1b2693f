"""Users: the principals inside an account. Their keys are in `keys`."""

from __future__ import annotations

from harness.web.http.record_routes import RecordRoutes, new_schema, record_router
from harness.web.http.route_docs import Schema
from workspaces.accounts.user import UserRecord


def _new() -> Schema:
    """A name may be left out where the platform's id is there to be named after."""
    schema = new_schema(UserRecord)
    return {name: value for name, value in schema.items() if name != "required"}


router = record_router(
    RecordRoutes(
        one="a user",
        plural="users",
        shape=UserRecord,
        new=_new(),
        example={
            "id": "usr_0c1d2e3f4a5b6c7d8e9f0a1b",
            "name": "Ada",
            "externalId": "ada@example.com",
            "createdAt": "2026-11-18T14:03:18.875130Z",
            "updatedAt": "2026-11-18T14:03:18.875130Z",
        },
        patch={"name": "Ada L."},
        create=lambda rooms, fields: rooms.users.create(fields),
        list=lambda rooms: rooms.users.list(),
        get=lambda rooms, reference: rooms.users.get(reference),
        change=lambda rooms, reference, patch: rooms.users.patch(reference, patch),
        delete=lambda rooms, reference, _: rooms.deletion.user(reference),
        about=(
            "Somebody who talks to agents. `externalId` is the platform's own id; with it in "
            "`X-Harness-User` the account's key acts as this user."
        ),
        is_referenced=False,
    )
)
