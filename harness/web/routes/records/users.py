"""Routes of users, the end users of an account. The routes of their keys are in `keys`."""

from __future__ import annotations

from harness.web.http.record_routes import RecordRoutes, new_schema, record_router
from harness.web.http.route_docs import Schema
from workspaces.accounts.user import UserRecord


def _new() -> Schema:
    """Return the schema of a new user. The name is optional: the external id can be the name."""
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
        create=lambda services, fields: services.users.add(fields),
        list=lambda services: services.users.list(),
        get=lambda services, reference: services.users.get(reference),
        change=lambda services, reference, patch: services.users.patch(reference, patch),
        delete=lambda services, reference, _: services.deletion.user(reference),
        about=(
            "A person who talks to agents. `externalId` is the id on your platform. With it in "
            "`X-Harness-User`, an account key acts as this user."
        ),
        is_referenced=False,
    )
)
