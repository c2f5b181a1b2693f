"""Facts as JSON, the same on every face."""

from __future__ import annotations

from typing import Any

from harness.memory.facts.fact import Fact
from harness.memory.facts.facts import FactScope


def fact_json(fact: Fact, scope: FactScope) -> dict[str, Any]:
    """Return a fact as a row."""
    row = {
        "id": fact.id,
        "scope": scope.name,
        "agentId": scope.agent_id,
        "workspaceId": None if scope.agent_id else scope.workspace_id,
        "key": fact.key,
        "value": fact.value,
        "source": fact.source,
        "pinned": fact.pinned,
        "importance": fact.importance,
        "createdAt": fact.created_at,
        "updatedAt": fact.updated_at,
        "version": fact.version,
    }
    return {**row, "truncated": True} if fact.is_truncated else row
