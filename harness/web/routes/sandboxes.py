"""Sandboxes: where and how commands run."""

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
        create=lambda rooms, fields: rooms.sandboxes.create(fields),
        list=lambda rooms: rooms.sandboxes.list(),
        get=lambda rooms, reference: rooms.sandboxes.get(reference),
        change=lambda rooms, reference, patch: rooms.sandboxes.patch(reference, patch),
        delete=lambda rooms, reference, force: rooms.deletion.sandbox(reference, force=force),
        about="Where commands of an agent run, and whether they may write.",
    )
)
