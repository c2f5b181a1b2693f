"""Routes of sandboxes."""

from __future__ import annotations

from harness.sandboxes.record import SandboxRecord
from harness.web.http.record_routes import RecordRoutes, new_schema, record_router

router = record_router(
    RecordRoutes(
        one="a sandbox",
        plural="sandboxes",
        shape=SandboxRecord,
        new=new_schema(SandboxRecord),
        example={
            "id": "sb_4f0c3f4d5b0a4b8c9d1e2f3a",
            "name": "read-only",
            "config": {"mode": "ro"},
            "createdAt": "2026-11-18T14:03:18.875130Z",
            "updatedAt": "2026-11-18T14:03:18.875130Z",
        },
        patch={"config": {"mode": "rw"}},
        create=lambda services, fields: services.sandboxes.add(fields),
        list=lambda services: services.sandboxes.list(),
        get=lambda services, reference: services.sandboxes.get(reference),
        change=lambda services, reference, patch: services.sandboxes.patch(reference, patch),
        delete=lambda services, reference, force: services.deletion.sandbox(reference, force=force),
        about="The sandbox of an agent's commands, and whether they may write.",
    )
)
