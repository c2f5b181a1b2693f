"""Building memorize for one principal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.conversations.conversation import Conversations
from harness.memorize.archive.archives import Archives
from harness.memorize.local.own_conversations import OwnConversations
from harness.memorize.memories import Memories
from harness.memorize.memorize import Memorizer
from harness.memory.facts.fact_catalog import FactCatalog
from harness.runtime.settings import Settings
from workspaces.clock import Clock
from workspaces.forgetting.gate import ForbiddenTexts
from workspaces.ids import AgentId
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore


def open_memorizer(
    facts: FactCatalog,
    conversations: Conversations,
    settings: Settings,
    *,
    agent_ids: Callable[[], Sequence[AgentId]],
    records: RecordStore,
    large: BlobStore,
    clock: Clock,
    forbidden: ForbiddenTexts,
) -> Memorizer:
    archives = Archives(facts.principal, records, large, clock)
    return Memorizer(
        Memories(facts, archives, agent_ids),
        archives,
        OwnConversations(conversations),
        clock,
        settings.default_workspace,
        forbidden.refuse,
    )
