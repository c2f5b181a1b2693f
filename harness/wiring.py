"""The composition root: settings in, a house with rooms for every principal out. Adapters are named here
and in `locations`, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from harness.agent import AgentRecord, Agents
from harness.conversation import Conversations
from harness.deletion import Deletion
from harness.duty import duties
from harness.inbox import Inbox
from harness.ingress import Ingress
from harness.job import Job, Jobs
from harness.models.anthropic import AnthropicModel
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.port import Model
from harness.resident import Resident
from harness.runner import JobRunner
from harness.sandbox import SANDBOXES, SandboxRecord
from harness.settings import Settings
from harness.template import workspace_files
from harness.tools.edit import EDIT
from harness.tools.read import READ
from harness.tools.write import WRITE
from harness.watching import Watching, all_of, log_news
from workspaces.account import Accounts, OwnAccount, Principal
from workspaces.catalog import Catalog, partition_of
from workspaces.claim import Claims
from workspaces.clock import Clock, SystemClock
from workspaces.key import Keys
from workspaces.lease import Leases
from workspaces.locations import records_at
from workspaces.records import RecordStore
from workspaces.stores.files import FileBlobs
from workspaces.user import Users
from workspaces.workspace import Workspace
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
    account: OwnAccount
    users: Users
    keys: Keys
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    agents: Agents
    conversations: Conversations
    jobs: Jobs
    deletion: Deletion
    ingress: Ingress


class House:
    """What all principals of a home share: its settings, its stores, its jobs, and rooms for each."""

    def __init__(self, settings: Settings, records: RecordStore, clock: Clock, model: Model | None):
        self.settings = settings
        self.clock = clock
        self.records = records
        self.accounts = Accounts(records, clock)
        self.jobs = Jobs(records, clock)
        self.runner = JobRunner(self.jobs, duties(self._rooms_of_job), clock)
        self.rooms = lru_cache(maxsize=PRINCIPALS_MAX)(self._furnish)
        self._large = FileBlobs(settings.home.entries, settings.home.entries_staging)
        self._leases = Leases(records, clock)
        self._model = model

    def owner(self) -> Principal:
        """The owner of the home's default account."""
        return self.accounts.owner(self.accounts.default())

    def close(self) -> None:
        self.records.close()

    def _rooms_of_job(self, job: Job) -> Rooms:
        """What is due later is due in the name of whoever wanted it."""
        account_id, user_id = job.payload["accountId"], job.payload["userId"]
        return self.rooms(self.accounts.member(account_id, user_id))

    def _furnish(self, principal: Principal) -> Rooms:
        settings, clock, records = self.settings, self.clock, self.records
        account_id, may_change = principal.account_id, principal.may_configure
        users = Users(account_id, records, clock, may_change=may_change)
        keys = Keys(account_id, records, clock, may_change=may_change)
        templates = partial(workspace_files, own=settings.home.templates)
        workspaces = Workspaces(principal, settings.home, records, clock, templates)
        sandboxes = Catalog(
            SANDBOXES, partition_of(account_id), records, clock, may_change=may_change
        )
        agents = Agents(principal, records, clock, workspaces=workspaces, sandboxes=sandboxes)
        conversations = Conversations(
            principal, records, self._large, clock, leases=self._leases, jobs=self.jobs
        )
        inbox = Inbox(
            principal,
            records,
            self._large,
            clock,
            conversations=conversations,
            claims=Claims(records, clock),
            leases=self._leases,
            jobs=self.jobs,
        )
        return Rooms(
            settings,
            clock,
            principal,
            records,
            OwnAccount(principal, self.accounts),
            users,
            keys,
            workspaces,
            sandboxes,
            agents,
            conversations,
            self.jobs,
            Deletion(
                principal, self.accounts, users, keys, workspaces, sandboxes, agents, conversations
            ),
            Ingress(clock, agents, conversations, inbox, self._leases, TOOLS, self._open_model),
        )

    def _open_model(self, agent: AgentRecord) -> Model:
        return self._model or _model(self.settings, agent)


def wire(settings: Settings, *, model: Model | None = None, clock: Clock | None = None) -> House:
    """`model` answers for every agent, whatever model it names: for tests and for trying out."""
    clock = clock or SystemClock()
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    return House(settings, records, clock, model)


def residents(house: House) -> dict[str, Resident]:
    """What lives as long as `harness up` does, by name."""
    trees, clock = house.settings.home.trees, house.clock
    watcher = Watching(trees, lambda: _workspaces(house), clock, log_news)
    return {"jobs": house.runner, "watcher": watcher}


def _workspaces(house: House) -> Iterator[Workspace]:
    """Of all accounts."""
    for account in house.accounts.list():
        yield from all_of(house.rooms(house.accounts.owner(account)).workspaces)


def _model(settings: Settings, agent: AgentRecord) -> Model:
    name = agent.config.model or settings.model
    if name == DEMO or settings.anthropic_api_key is None:
        return DemoModel()
    return AnthropicModel(
        name, api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url
    )
