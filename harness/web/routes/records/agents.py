"""Routes of agents."""

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
        create=lambda services, fields: services.agents.add(fields),
        list=lambda services: services.agents.list(),
        get=lambda services, reference: services.agents.get(reference),
        change=lambda services, reference, patch: services.agents.patch(reference, patch),
        delete=lambda services, reference, _: services.deletion.agent(reference),
        about=(
            "An agent mounts workspaces under its own names for them. The first is its default. "
            "Without a sandbox its mounts are read-only."
        ),
        is_referenced=False,
    )
)
