"""The composition root: settings in, a house with rooms for every principal out. Adapters are named here
and in `locations`, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from harness.agent import AgentRecord, Agents
from harness.conversation import Conversations
from harness.crossing import in_thread
from harness.inbox import Inbox
from harness.models.anthropic import AnthropicModel
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.port import Model
from harness.sandbox import SANDBOXES, SandboxRecord
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.port import Sandbox
from harness.sandboxes.program import ripgrep
from harness.settings import Settings
from harness.template import workspace_files
from harness.tools.bash import BASH
from harness.tools.edit import EDIT
from harness.tools.glob import GLOB
from harness.tools.grep import GREP
from harness.tools.read import READ
from harness.tools.read_result import READ_RESULT
from harness.tools.workshop import Workshop
from harness.tools.write import WRITE
from workspaces.account import Principal, default_owner
from workspaces.catalog import Catalog
from workspaces.claim import Claims
from workspaces.clock import Clock, SystemClock
from workspaces.errors import Failure
from workspaces.lease import Leases
from workspaces.locations import records_at
from workspaces.records import RecordStore
from workspaces.stores.files import FileBlobs
from workspaces.workspaces import Workspaces

TOOLS = (BASH, READ, GLOB, GREP, WRITE, EDIT, READ_RESULT)

PRINCIPALS_MAX = 256
"""How many principals' rooms are kept furnished; making them anew costs a few objects and no I/O."""


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


class House:
    """What all principals of a home share: its settings, its stores, and rooms for each of them."""

    def __init__(
        self,
        settings: Settings,
        records: RecordStore,
        clock: Clock,
        model: Model | None,
        sandbox: Sandbox,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.records = records
        self._entries = FileBlobs(settings.home.entries, settings.home.entries_staging)
        self._model = model
        self.sandbox = sandbox
        self._workshop: Workshop | None = None
        self.rooms = lru_cache(maxsize=PRINCIPALS_MAX)(self._furnish)

    def owner(self) -> Principal:
        """The owner of the home's default account."""
        return default_owner(self.records, self.clock)

    async def workshop(self) -> Workshop:
        """With a sandbox, if there is one that confines here and now."""
        if self._workshop is not None:
            return self._workshop
        if not (await self.sandbox.check()).works:
            return Workshop(None, await in_thread(ripgrep, None))
        try:
            program = await in_thread(ripgrep, self.settings.home)
        except Failure:  # the disk is full, say: no reason for a turn to fail
            return Workshop(self.sandbox, None)
        self._workshop = Workshop(self.sandbox, program)
        return self._workshop

    def close(self) -> None:
        self.records.close()

    def _furnish(self, principal: Principal) -> Rooms:
        settings, clock, records = self.settings, self.clock, self.records
        workspaces = Workspaces(principal, settings.home, records, clock, workspace_files)
        sandboxes = Catalog(SANDBOXES, principal.account_id, records, clock)
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
                self._entries,
                agents,
                conversations,
                Claims(records, clock),
                Leases(records, clock),
                TOOLS,
                self._open_model,
                self.workshop,
            ),
        )

    def _open_model(self, agent: AgentRecord) -> Model:
        return self._model or _model(self.settings, agent)


def wire(
    settings: Settings,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    sandbox: Sandbox | None = None,
) -> House:
    """`model` answers for every agent, whatever model it names, and `sandbox` runs every command: for
    tests and for trying out."""
    clock = clock or SystemClock()
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    return House(settings, records, clock, model, sandbox or Bubblewrap(settings.home))


def _model(settings: Settings, agent: AgentRecord) -> Model:
    name = agent.config.model or settings.model
    if name == DEMO or settings.anthropic_api_key is None:
        return DemoModel()
    return AnthropicModel(
        name, api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url
    )
