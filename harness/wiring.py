"""The composition root: settings in, a house with rooms for every principal out. Adapters are named here
and in `locations`, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

from harness.agent import AgentRecord, Agents
from harness.allowance import Allowance
from harness.conversation import Conversations
from harness.deletion import Deletion
from harness.inbox import Inbox
from harness.models.anthropic import AnthropicModel
from harness.models.anthropic_client import AnthropicClients
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.metered import MeteredModel
from harness.models.patient import PatientModel
from harness.models.port import Model
from harness.price import Prices, own_prices
from harness.sandbox import SANDBOXES, SandboxRecord
from harness.settings import Settings
from harness.template import workspace_files
from harness.tools.edit import EDIT
from harness.tools.read import READ
from harness.tools.write import WRITE
from harness.usage import AccountUsage, Ledger, Purpose, Spender
from workspaces.account import Accounts, Principal
from workspaces.catalog import Catalog, partition_of
from workspaces.claim import Claims
from workspaces.clock import Clock, SystemClock
from workspaces.ids import ConversationId
from workspaces.key import Keys
from workspaces.lease import Leases
from workspaces.locations import records_at
from workspaces.records import RecordStore
from workspaces.stores.files import FileBlobs
from workspaces.user import Users
from workspaces.workspaces import Workspaces

TOOLS = (READ, WRITE, EDIT)


PRINCIPALS_MAX = 256
"""How many principals' rooms are kept furnished; making them anew costs a few objects and no I/O."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """Everything that one principal's use of a home is made of."""

    settings: Settings
    clock: Clock
    principal: Principal
    records: RecordStore
    users: Users
    keys: Keys
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    agents: Agents
    conversations: Conversations
    deletion: Deletion
    usage: AccountUsage
    inbox: Inbox


class House:
    """What all principals of a home share: its settings, its stores, and rooms for each of them."""

    def __init__(self, settings: Settings, records: RecordStore, clock: Clock, model: Model | None):
        self.settings = settings
        self.clock = clock
        self.records = records
        self.accounts = Accounts(records, clock)
        self._entries = FileBlobs(settings.home.entries, settings.home.entries_staging)
        self.ledger = Ledger(records, clock, _prices(settings))
        self.allowance = Allowance(records, clock, self.accounts, self.ledger)
        self._model = model
        self._clients = _clients(settings)
        self.rooms = lru_cache(maxsize=PRINCIPALS_MAX)(self._furnish)

    def owner(self) -> Principal:
        """The owner of the home's default account."""
        return self.accounts.owner(self.accounts.default())

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()
        self.records.close()

    def _furnish(self, principal: Principal) -> Rooms:
        settings, clock, records = self.settings, self.clock, self.records
        workspaces = Workspaces(principal, settings.home, records, clock, workspace_files)
        account_id, may_change = principal.account_id, principal.may_configure
        users = Users(account_id, records, clock, may_change=may_change)
        keys = Keys(account_id, records, clock, may_change=may_change)
        sandboxes = Catalog(
            SANDBOXES, partition_of(account_id), records, clock, may_change=may_change
        )
        agents = Agents(principal, records, clock, workspaces=workspaces, sandboxes=sandboxes)
        conversations = Conversations(principal, records, clock)
        return Rooms(
            settings,
            clock,
            principal,
            records,
            users,
            keys,
            workspaces,
            sandboxes,
            agents,
            conversations,
            Deletion(
                principal,
                self.accounts,
                users,
                keys,
                workspaces,
                sandboxes,
                agents,
                self.ledger,
                self.allowance,
            ),
            AccountUsage(principal, self.ledger),
            Inbox(
                principal,
                records,
                self._entries,
                agents,
                conversations,
                Claims(records, clock),
                Leases(records, clock),
                TOOLS,
                self.allowance,
                partial(self.open_model, principal),
            ),
        )

    def open_model(
        self,
        principal: Principal,
        agent: AgentRecord,
        conversation_id: ConversationId | None = None,
        purpose: Purpose = "turn",
    ) -> Model:
        """The agent's model; what it uses up is noted for the principal."""
        spender = Spender(
            principal.account_id, agent.id, principal.user_id, conversation_id, purpose
        )

        def metered(model: Model) -> Model:
            return MeteredModel(model, spender, self.ledger, self.allowance)

        name = agent.config.model or self.settings.model
        if self._model is not None:
            return metered(self._model)
        if name == DEMO or self._clients is None:
            return metered(DemoModel())
        return PatientModel(metered(AnthropicModel(name, self._clients)))


def wire(settings: Settings, *, model: Model | None = None, clock: Clock | None = None) -> House:
    """`model` answers for every agent, whatever model it names: for tests and for trying out."""
    clock = clock or SystemClock()
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    return House(settings, records, clock, model)


def _clients(settings: Settings) -> AnthropicClients | None:
    """None without a key: the demo model answers."""
    if settings.anthropic_api_key is None:
        return None
    return AnthropicClients(settings.anthropic_api_key, settings.anthropic_base_url)


def _prices(settings: Settings) -> Prices:
    if settings.prices is None:
        return own_prices()
    return own_prices().with_file(settings.home.root / settings.prices)
