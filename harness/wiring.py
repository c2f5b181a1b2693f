"""The composition root: settings in, one frozen record of everything out. Adapters are named here and
in `locations`, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from harness.agent import AgentRecord, Agents
from harness.conversation import Conversations
from harness.duty import duties
from harness.inbox import Inbox
from harness.ingress import Ingress
from harness.job import Job, Jobs
from harness.models.anthropic import AnthropicModel
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.port import Model
from harness.runner import JobRunner
from harness.sandbox import SANDBOXES, SandboxRecord
from harness.settings import Settings
from harness.template import workspace_files
from harness.tools.edit import EDIT
from harness.tools.read import READ
from harness.tools.write import WRITE
from workspaces.account import Principal, default_owner
from workspaces.catalog import Catalog
from workspaces.claim import Claims
from workspaces.clock import Clock, SystemClock
from workspaces.errors import Refused
from workspaces.lease import Leases
from workspaces.locations import records_at
from workspaces.records import RecordStore
from workspaces.stores.files import FileBlobs
from workspaces.workspaces import Workspaces

TOOLS = (READ, WRITE, EDIT)


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
    ingress: Ingress
    jobs: Jobs
    runner: JobRunner


def wire(settings: Settings, *, model: Model | None = None, clock: Clock | None = None) -> Rooms:
    """`model` answers for every agent, whatever model it names: for tests and for trying out."""
    clock = clock or SystemClock()
    home = settings.home
    records = records_at(settings.records, base=home.root, clock=clock)
    principal = default_owner(records, clock)
    account_id = principal.account_id
    workspaces = Workspaces(principal, home, records, clock, workspace_files)
    sandboxes = Catalog(SANDBOXES, account_id, records, clock)
    agents = Agents(principal, records, clock, workspaces=workspaces, sandboxes=sandboxes)
    leases, jobs = Leases(records, clock), Jobs(records, clock)
    large = FileBlobs(home.entries, home.entries_staging)
    conversations = Conversations(principal, records, large, clock, leases=leases, jobs=jobs)
    inbox = Inbox(
        principal,
        records,
        large,
        clock,
        conversations=conversations,
        claims=Claims(records, clock),
        leases=leases,
        jobs=jobs,
    )
    ingress = Ingress(
        clock,
        agents,
        conversations,
        inbox,
        leases,
        TOOLS,
        lambda agent: model or _model(settings, agent),
    )

    def rooms_for(job: Job) -> Rooms:
        if job.payload["userId"] != principal.user_id:
            raise Refused("job", job.id, "is another user's")
        return rooms

    rooms = Rooms(
        settings,
        clock,
        principal,
        records,
        workspaces,
        sandboxes,
        agents,
        conversations,
        ingress,
        jobs,
        JobRunner(jobs, duties(rooms_for), clock),
    )
    return rooms


def _model(settings: Settings, agent: AgentRecord) -> Model:
    name = agent.config.model or settings.model
    if name == DEMO or settings.anthropic_api_key is None:
        return DemoModel()
    return AnthropicModel(
        name, api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url
    )
