"""Agents: who talks, and what it mounts."""

from __future__ import annotations

from harness.agents.record import AgentRecord
from harness.web.http.record_routes import RecordRoutes, new_schema, record_router

router = record_router(
    RecordRoutes(
        one="an agent",
        plural="agents",
        shape=AgentRecord,
        new=new_schema(AgentRecord),
        example={
            "id": "agent_a22494fde566d3dd4b631888",
            "name": "helper",
            "config": {
                "system": "You are brief.",
                "sandbox": "sb_4f0c3f4d5b0a4b8c9d1e2f3a",
                "workspaces": [{"name": "notes", "workspaceId": "ws_9b1f0f3c2a7d4e5b6c7d8e9f"}],
            },
            "createdAt": "2026-11-18T14:03:18.875130Z",
            "updatedAt": "2026-11-18T14:03:18.875130Z",
        },
        patch={"config": {"system": "You are very brief."}},
        create=lambda rooms, fields: rooms.agents.add(fields),
        list=lambda rooms: rooms.agents.list(),
        get=lambda rooms, reference: rooms.agents.get(reference),
        change=lambda rooms, reference, patch: rooms.agents.patch(reference, patch),
        delete=lambda rooms, reference, _: rooms.deletion.agent(reference),
        about=(
            "An agent mounts workspaces under names of its own; the first is its default. "
            "Without a sandbox its mounts are read-only."
        ),
        is_referenced=False,
    )
)
