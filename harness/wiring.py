"""The composition root: settings in, one frozen record of everything out. Adapters are named here and
in `locations`, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from harness.agent import AgentRecord, Agents
from harness.conversation import Conversations
from harness.embedding import EmbeddingEndpoint
from harness.inbox import Inbox
from harness.models.anthropic import AnthropicModel
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.port import Model
from harness.sandbox import SANDBOXES, SandboxRecord
from harness.settings import Settings
from harness.template import workspace_files
from harness.tools.edit import EDIT
from harness.tools.read import READ
from harness.tools.recall import RECALL
from harness.tools.write import WRITE
from workspaces.account import Principal, default_owner
from workspaces.catalog import Catalog
from workspaces.claim import Claims
from workspaces.clock import Clock, SystemClock
from workspaces.lease import Leases
from workspaces.locations import records_at
from workspaces.records import RecordStore
from workspaces.search.meaning import Embedder
from workspaces.stores.files import FileBlobs
from workspaces.workspaces import Workspaces

TOOLS = (READ, WRITE, EDIT, RECALL)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Everything that one principal's use of a home is made of."""

    settings: Settings
    clock: Clock
    principal: Principal
    records: RecordStore
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    agents: Agents
    conversations: Conversations
    inbox: Inbox


def wire(
    settings: Settings,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    embedder: Embedder | None = None,
) -> Rooms:
    """`model` answers for every agent, whatever model it names: for tests and for trying out.
    `embedder` gives recall its vectors, instead of the endpoint of the settings."""
    clock = clock or SystemClock()
    home = settings.home
    records = records_at(settings.records, base=home.root, clock=clock)
    principal = default_owner(records, clock)
    account_id = principal.account_id
    workspaces = Workspaces(
        principal, home, records, clock, workspace_files, embedder or _embedder(settings)
    )
    sandboxes = Catalog(SANDBOXES, account_id, records, clock)
    agents = Agents(principal, records, clock, workspaces=workspaces, sandboxes=sandboxes)
    conversations = Conversations(principal, records, clock)
    return Rooms(
        settings,
        clock,
        principal,
        records,
        workspaces,
        sandboxes,
        agents,
        conversations,
        Inbox(
            principal,
            records,
            FileBlobs(home.entries, home.entries_staging),
            agents,
            conversations,
            Claims(records, clock),
            Leases(records, clock),
            TOOLS,
            lambda agent: model or _model(settings, agent),
        ),
    )


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embeddings_url is None:
        return None
    return EmbeddingEndpoint(
        settings.embeddings_url, settings.embeddings_model, settings.embeddings_key
    )


def _model(settings: Settings, agent: AgentRecord) -> Model:
    name = agent.config.model or settings.model
    if name == DEMO or settings.anthropic_api_key is None:
        return DemoModel()
    return AnthropicModel(
        name, api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url
    )
