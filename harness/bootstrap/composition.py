"""The composition root: from the settings to the application, and the services of every principal.

Adapters are named here and in `locations`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from harness.agents.catalog import AgentCatalog
from harness.billing.ledger import AccountUsage, Ledger
from harness.billing.limits import AccountLimiter
from harness.billing.price import prices_from
from harness.bootstrap.job_kinds import Flushing, job_kinds
from harness.bootstrap.learning_services import learning_services
from harness.bootstrap.local_files import (
    clock_of,
    embedder_of,
    forbidden_texts,
    protection_of_memory,
)
from harness.bootstrap.memory_services import open_forgettings, open_memorizer
from harness.bootstrap.model_catalog import ModelCatalog
from harness.conversations.conversation import Conversations
from harness.conversations.event_queue import EventQueue
from harness.forgetting.forgettings import Forgettings
from harness.jobs.background_task import BackgroundTask
from harness.jobs.job import Job, Jobs
from harness.jobs.runner import JobRunner, JobShare
from harness.learning.budget import DailyLimit
from harness.learning.learning import LEARN, LEARNING_AT_ONCE_MAX, Learning
from harness.memorize.memorize import Memorizer
from harness.memory.blocks.blocks import Blocks
from harness.memory.decisions.decision_files import DecisionFiles
from harness.memory.facts.fact_catalog import FactCatalog
from harness.memory.facts.fact_index import FactIndexes
from harness.memory.memory_cache import MemoryCache
from harness.models.anthropic.wire_format import AnthropicNotation
from harness.models.port import Model
from harness.runs.active_memory import ActiveMemories
from harness.runs.chain import CHAIN, Chains
from harness.runs.decisions import CardShelf, Decisions
from harness.runs.run_records import RUN, RUNS_AT_ONCE_MAX, RunRecords
from harness.runs.run_turns import RunTurns
from harness.runs.runs import Runs
from harness.runs.scheduler import ScheduleCorrection, ScheduleJobs, Scheduler, delete_runs_of
from harness.runtime.settings import Settings
from harness.runtime.templates import workspace_files
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.port import Sandbox
from harness.sandboxes.record import SANDBOXES, SandboxRecord
from harness.sync.background_sync import BackgroundSync
from harness.sync.background_watch import BackgroundWatch, all_of, log_watch_event
from harness.sync.local_copies import LocalCopies
from harness.sync.record_deletion import RecordDeletion
from harness.sync.registry_records import record_adapters
from harness.sync.registry_state import RegistryState
from harness.sync.registry_sync import RecordAdapter, RegistrySync
from harness.sync.trash_emptying import TrashEmptying
from harness.tools.bash import BASH
from harness.tools.custom import CustomTool, custom_tools
from harness.tools.files.edit import EDIT
from harness.tools.files.glob import GLOB
from harness.tools.files.grep import GREP
from harness.tools.files.read import READ
from harness.tools.files.read_result import READ_RESULT
from harness.tools.files.write import WRITE
from harness.tools.memory.recall import RECALL
from harness.tools.memory.update_memory import UPDATE_MEMORY
from harness.tools.port import AnyTool
from harness.tools.programs import ProgramSearch
from harness.tools.stored_results import StoredResults
from harness.transcripts.transcript import Transcript
from harness.turns.broadcast import Broadcaster
from harness.turns.dispatcher import Dispatcher
from harness.turns.turn_observer import TurnObservers
from harness.webhooks.notices import DELIVERIES_AT_ONCE_MAX, WEBHOOK, WebhookNotices
from harness.webhooks.webhook import Webhooks
from workspaces.accounts.account import Accounts, OwnAccount
from workspaces.accounts.key import Keys
from workspaces.accounts.principal import Principal
from workspaces.accounts.record_catalog import Catalog
from workspaces.accounts.stored_items import partition_of
from workspaces.accounts.user import Users
from workspaces.clock import Clock
from workspaces.coordination.claim import Claims
from workspaces.coordination.lease import Leases
from workspaces.errors import Refused
from workspaces.forgetting.rule_records import RuleRecords
from workspaces.home.cards import Cards, card_account
from workspaces.home.deletion_hold import HeldOffBlobs
from workspaces.home.forbidding import Forbidding
from workspaces.home.locations import are_shared, bucket_at, records_at
from workspaces.home.lost_records import check_has_records
from workspaces.home.unreachable import SET_PLACE
from workspaces.home.workspaces import Workspaces
from workspaces.ids import AccountId, ConversationId, WorkspaceId
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import RegistryKind
from workspaces.remote.tick_claim import TickClaims
from workspaces.search.embeddings import Embedder
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.watch import WatchEvent
from workspaces.workspace.workspace import Workspace
from workspaces.workspace_record import WorkspaceRecord

TOOLS: tuple[AnyTool, ...] = (
    BASH,
    READ,
    GLOB,
    GREP,
    WRITE,
    EDIT,
    RECALL,
    UPDATE_MEMORY,
    READ_RESULT,
)

JOB_SHARES = (
    JobShare(frozenset({LEARN}), LEARNING_AT_ONCE_MAX),
    JobShare(frozenset({WEBHOOK}), DELIVERIES_AT_ONCE_MAX),
    JobShare(frozenset({RUN, CHAIN}), RUNS_AT_ONCE_MAX),
)

PRINCIPALS_MAX = 256
"""Principals whose services are cached. Building them anew costs a few objects and no I/O."""


@dataclass(frozen=True, slots=True)
class PrincipalServices:
    """The services that one principal of a home uses."""

    settings: Settings
    clock: Clock
    principal: Principal
    records: RecordStore
    account: OwnAccount
    users: Users
    keys: Keys
    workspaces: Workspaces
    sandboxes: Catalog[SandboxRecord]
    agents: AgentCatalog
    blocks: Blocks
    facts: FactCatalog
    memorizer: Memorizer
    forgettings: Forgettings
    conversations: Conversations
    jobs: Jobs
    webhooks: Webhooks
    notices: WebhookNotices
    forbidding: Forbidding
    deletion: RecordDeletion
    usage: AccountUsage
    dispatcher: Dispatcher
    runs: Runs
    chains: Chains
    decisions: Decisions
    scheduler: Scheduler
    learning: Learning
    registry_sync: RegistrySync | None
    """The sync of the account's records between machines. None where nothing is shared."""


class Application:
    """The settings, stores and jobs that all principals of a home share, and the services of each
    principal."""

    def __init__(
        self,
        settings: Settings,
        records: RecordStore,
        clock: Clock,
        *,
        place: SharedBucket | None,
        large: BlobStore,
        model: Model | None,
        embedder: Embedder | None,
        sandbox: Sandbox,
        tools: Sequence[CustomTool | Callable[..., Any]] = (),
        allows_demo: bool = True,
    ) -> None:
        self.tools = (*TOOLS, *custom_tools(tools, (tool.name for tool in TOOLS)))
        self.settings = settings
        self.clock = clock
        self.records = records
        self.accounts = Accounts(records, clock)
        own = settings.home.root / settings.prices if settings.prices else None
        self.ledger = Ledger(records, clock, prices_from(own))
        self.limiter = AccountLimiter(records, clock, self.accounts, self.ledger)
        self.learning_limit = DailyLimit(self.accounts, self.ledger)
        self.models = ModelCatalog(
            settings, self.ledger, self.limiter, fixed=model, allows_demo=allows_demo
        )
        self.notation = AnthropicNotation()
        self.jobs = Jobs(records, clock)
        kinds = job_kinds(self._services_of_job, settings.home.machine)
        self.runner = JobRunner(self.jobs, kinds, clock, shares=JOB_SHARES)
        self.place = place
        self.broadcaster = Broadcaster()
        self._memories = MemoryCache()
        self._fact_indexes = FactIndexes()
        self.rooms = lru_cache(maxsize=PRINCIPALS_MAX)(self._build_services)
        self._large = large
        self._leases = Leases(records, clock)
        self._embedder = embedder
        self.sandbox = sandbox
        self.programs = ProgramSearch(sandbox, settings.home, clock).find

    def owner(self) -> Principal:
        """Return the owner of the home's default account.

        Raises: Refused for a home that has trees and has lost its records.
        """
        check_has_records(self.settings.home, self.accounts, self.settings.records_shown)
        return self.accounts.owner(self.accounts.default())

    def close(self) -> None:
        for closing in (self.models, self.records, self.place):
            if closing is not None:
                closing.close()

    def _services_of_job(self, job: Job) -> PrincipalServices:
        """Return the services of the principal who enqueued the job."""
        account_id, user_id = job.payload["accountId"], job.payload["userId"]
        return self.rooms(self.accounts.member(account_id, user_id))

    def _build_services(self, principal: Principal) -> PrincipalServices:
        settings, clock, records = self.settings, self.clock, self.records
        account_id, may_change = principal.account_id, principal.may_configure
        only = None if may_change else principal.user_id
        users = Users(account_id, records, clock, may_change=may_change, only=only)
        keys = Keys(account_id, records, clock, may_change=may_change)
        webhooks = Webhooks(account_id, records, clock, may_change=may_change)
        notices = WebhookNotices(principal, webhooks, self.jobs, clock)
        forbidden = forbidden_texts(RuleRecords(account_id, records, clock, may_change=may_change))
        templates = partial(workspace_files, own=settings.home.templates)
        workspaces = Workspaces(
            principal,
            settings.home,
            records,
            clock,
            templates,
            embedder=self._embedder,
            place=self.place,
            are_records_shared=are_shared(settings.records),
            revised=_calling_all(
                notices.memory_changed,
                *(
                    [Flushing(principal, self.jobs, settings.home.machine, clock)]
                    if self.place
                    else []
                ),
            ),
            is_over=partial(self._is_over, account_id),
            cards=Cards(settings.home, partial(card_account, self.accounts, account_id)),
            protection=protection_of_memory(),
            forbidden=forbidden,
        )
        sandboxes = Catalog(
            SANDBOXES, partition_of(account_id), records, clock, may_change=may_change
        )
        memories = ActiveMemories(account_id, records, clock)
        schedule_jobs = ScheduleJobs(principal, self.jobs, clock)
        cards = CardShelf(settings.home.root / "cards")
        agents = AgentCatalog(
            principal,
            records,
            clock,
            workspaces=workspaces,
            sandboxes=sandboxes,
            tool_names=(tool.name for tool in self.tools),
            check_model=self.models.check_name,
            check_card=cards.check,
            also=lambda agent, before: (
                *memories.toggled(agent, before),
                *schedule_jobs.changed(agent, before),
            ),
        )
        blocks = Blocks(
            principal,
            workspaces,
            agent_id_of=agents.id_of,
            agent_ids=agents.ids,
            sync_records=partial(self._sync_records, account_id),
        )
        conversations = Conversations(
            principal, records, self._large, clock, leases=self._leases, jobs=self.jobs
        )
        queue = EventQueue(
            principal,
            records,
            self._large,
            clock,
            conversations=conversations,
            claims=Claims(records, clock),
            leases=self._leases,
            jobs=self.jobs,
            marking=forbidden.marking,
        )
        run_records = RunRecords(principal, records, self._large, self.jobs, clock)
        decisions = Decisions(run_records, DecisionFiles(workspaces, clock), cards, clock)
        facts = FactCatalog(
            principal,
            workspaces,
            agents.id_of,
            self._fact_indexes,
            settings.fact_secrets == "allow",
        )
        memorizer = open_memorizer(
            facts,
            conversations,
            settings,
            agent_ids=agents.ids,
            records=records,
            large=self._large,
            clock=clock,
            forbidden=forbidden,
        )
        forgettings = open_forgettings(
            principal,
            settings,
            records=records,
            large=self._large,
            clock=clock,
            jobs=self.jobs,
            workspaces=workspaces,
            conversations=conversations,
            rules=forbidden.records,
            place=self.place,
            publish=partial(self._publish_records, account_id),
        )
        learning = learning_services(
            principal=principal,
            agents=agents,
            blocks=blocks,
            facts=facts,
            conversations=conversations,
            runs=run_records,
            limit=self.learning_limit,
            ledger=self.ledger,
            open_model=partial(self.models.open_small, principal, mark=forbidden.marked),
        )
        run_turns = RunTurns(run_records, memories, conversations, agents, decisions, clock)
        deletion = RecordDeletion(
            principal=principal,
            accounts=self.accounts,
            users=users,
            keys=keys,
            workspaces=workspaces,
            sandboxes=sandboxes,
            agents=agents,
            conversations=conversations,
            ledger=self.ledger,
            limiter=self.limiter,
            clock=clock,
            registry=None if self.place is None else self.place.registry(account_id),
            forget_webhooks=webhooks.forget,
            forget_rules=forgettings.erase,
            delete_archives=memorizer.archives.delete_of,
            delete_runs=partial(delete_runs_of, run_records, memories, schedule_jobs),
        )
        dispatcher = Dispatcher(
            clock=clock,
            agents=agents,
            blocks=blocks,
            conversations=conversations,
            event_queue=queue,
            leases=self._leases,
            tools=self.tools,
            limiter=self.limiter,
            open_model=partial(self.models.open, principal, mark=forbidden.marked),
            mark=forbidden.marked,
            programs=self.programs,
            results=self._results,
            price=lambda model: self.ledger.prices.find(model),
            publish_pending=partial(self._sync_records, account_id),
            broadcaster=self.broadcaster,
            memory_cache=self._memories,
            fact_indexes=self._fact_indexes,
            observer=TurnObservers((run_turns, learning.observer, notices)),
        )
        runs = Runs(
            principal,
            run_records,
            memories,
            agents,
            dispatcher,
            decisions=decisions,
            clock=clock,
            mark=forbidden.marked,
        )
        adapters = record_adapters(
            principal=principal,
            accounts=self.accounts,
            users=users,
            workspaces=workspaces,
            sandboxes=sandboxes,
            agents=agents,
            deletion=deletion,
        )
        return PrincipalServices(
            settings=settings,
            clock=clock,
            principal=principal,
            records=records,
            account=OwnAccount(principal, self.accounts),
            users=users,
            keys=keys,
            workspaces=workspaces,
            sandboxes=sandboxes,
            agents=agents,
            blocks=blocks,
            facts=facts,
            memorizer=memorizer,
            forgettings=forgettings,
            conversations=conversations,
            jobs=self.jobs,
            webhooks=webhooks,
            notices=notices,
            forbidding=Forbidding(forbidden, workspaces, principal),
            deletion=deletion,
            usage=AccountUsage(principal, self.ledger),
            dispatcher=dispatcher,
            runs=runs,
            chains=Chains(runs, learning.chain_ended),
            decisions=decisions,
            scheduler=Scheduler(
                agents, runs, schedule_jobs, clock, settings.home.machine, self._ticks(account_id)
            ),
            learning=learning.learning,
            registry_sync=(
                self._registry_sync(workspaces, adapters, forgettings) if may_change else None
            ),
        )

    def _registry_sync(
        self,
        workspaces: Workspaces,
        adapters: Mapping[RegistryKind, RecordAdapter],
        forgettings: Forgettings,
    ) -> RegistrySync | None:
        if self.place is None:
            return None
        account_id = forgettings.principal.account_id
        return RegistrySync(
            self.place.registry(account_id),
            RegistryState(account_id, self.place.location, self.records),
            self.settings.home,
            self.clock,
            adapters,
            sweep=workspaces.sweep,
            here_decides=are_shared(self.settings.records),
            rules=self.place.rules(account_id, forgettings.rules),
            heard=forgettings.hear,
        )

    def _sync_records(self, account_id: AccountId) -> None:
        """Sync the account's records before a turn, to see the changes of other machines."""
        if self.place is not None and (registry_sync := self._owners_sync(account_id)) is not None:
            registry_sync.sync_if_due()

    def _publish_records(self, account_id: AccountId) -> None:
        """Sync the account's records now, to publish the changes of this machine."""
        registry_sync = self._owners_sync(account_id)
        if registry_sync is not None:
            registry_sync.sync()

    def _ticks(self, account_id: AccountId) -> TickClaims | None:
        """Return the claims of ticks in the bucket, where machines share it but not their records."""
        if self.place is None or are_shared(self.settings.records):
            return None
        return self.place.ticks(account_id)

    def _is_over(self, account_id: AccountId, workspace_id: WorkspaceId) -> bool:
        registry_sync = self._owners_sync(account_id)
        return registry_sync is not None and registry_sync.is_over(workspace_id)

    def _owners_sync(self, account_id: AccountId) -> RegistrySync | None:
        """Return the sync of an account's records, which acts as the account's owner."""
        return self.rooms(self.accounts.owner(self.accounts.get(account_id))).registry_sync

    def _results(self, conversation_id: ConversationId) -> StoredResults:
        transcript = Transcript(conversation_id, self.records, self._large)
        return StoredResults(conversation_id, self._large, transcript.result)


def wire(
    settings: Settings,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    embedder: Embedder | None = None,
    sandbox: Sandbox | None = None,
    tools: Sequence[CustomTool | Callable[..., Any]] = (),
    place: SharedBucket | None = None,
    allows_demo: bool = True,
) -> Application:
    """Build the application.

    For tests and for trying out: `model` answers for every agent, whatever model it names; `sandbox` runs
    every command; `place` is the bucket where workspaces are shared, whatever the settings say. Every agent
    can call `tools`. `embedder` gives recall its vectors, instead of the endpoint of the settings. Without
    `allows_demo` the demo model never answers.
    """
    clock = clock or clock_of(settings)
    place = place or (None if settings.s3 is None else bucket_at(settings.s3))
    large = _large(settings, place)
    records = records_at(settings.records, base=settings.home.root, clock=clock)
    return Application(
        settings,
        records,
        clock,
        place=place,
        large=large,
        model=model,
        embedder=embedder or embedder_of(settings),
        sandbox=sandbox or Bubblewrap(settings.home),
        tools=tools,
        allows_demo=allows_demo,
    )


def background_tasks(application: Application) -> dict[str, BackgroundTask]:
    """Return the tasks that run as long as `harness up` does, by name."""
    trees, clock = application.settings.home.trees, application.clock
    background_sync = BackgroundSync(
        lambda: [_copies(services) for services in _owners(application)],
        follow=lambda: _sync_all_records(application),
    )

    def on_watch_event(watch_event: WatchEvent) -> None:
        log_watch_event(watch_event)
        background_sync.hear(watch_event)

    watcher = BackgroundWatch(trees, lambda: _workspaces(application), clock, on_watch_event)
    return {
        "jobs": application.runner,
        "schedules": ScheduleCorrection(
            lambda: [services.scheduler for services in _owners(application)]
        ),
        "watcher": watcher,
        "sync": background_sync,
        "trash": TrashEmptying(application.settings.home, application.settings.trash_days, clock),
    }


def _owners(application: Application) -> Iterator[PrincipalServices]:
    """Yield the services of the owners of all accounts."""
    for account in application.accounts.list():
        yield application.rooms(application.accounts.owner(account))


def _sync_all_records(application: Application) -> None:
    for services in _owners(application):
        if services.registry_sync is not None:
            services.registry_sync.sync_if_reachable()


def _workspaces(application: Application) -> Iterator[Workspace]:
    """Yield the workspaces of all accounts."""
    for services in _owners(application):
        yield from all_of(_copies(services))


def _calling_all(*hear: Callable[[WorkspaceRecord], None]) -> Callable[[WorkspaceRecord], None]:
    """Return a function that calls all of these."""

    def call_all(workspace: WorkspaceRecord) -> None:
        for one in hear:
            one(workspace)

    return call_all


def _copies(services: PrincipalServices) -> LocalCopies:
    found = services.notices.conflict_found
    return LocalCopies(services.workspaces, services.agents, conflict_found=found)


def _large(settings: Settings, place: SharedBucket | None) -> BlobStore:
    """Return the store of values too large for a record. Every machine with the record can read it."""
    if not are_shared(settings.records):
        values = FileBlobs(settings.home.entries, settings.home.entries_staging)
        return HeldOffBlobs(values, settings.home)
    if place is None:
        rule = "must be set: the records are shared with other machines, which need the files too"
        raise Refused("s3", None, rule, remedy=SET_PLACE)
    return place.entries()
