"""The composition root: settings in, a house with rooms for every principal out. Adapters are named here
and in `locations`, and nowhere else."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from harness.agents.catalog import AgentCatalog
from harness.agents.record import AgentRecord
from harness.billing.ledger import AccountUsage, Ledger, UsageOwner, UsagePurpose
from harness.billing.limits import AccountLimiter
from harness.billing.price import Prices, own_prices
from harness.bootstrap.job_kinds import Flushing, job_kinds
from harness.conversations.conversation import Conversations
from harness.conversations.event_queue import EventQueue
from harness.jobs.background_task import BackgroundTask
from harness.jobs.job import Job, Jobs
from harness.jobs.runner import JobRunner
from harness.memory.memory_cache import MemoryCache
from harness.models.anthropic.clients import AnthropicClients
from harness.models.anthropic.model import AnthropicModel
from harness.models.anthropic.wire_format import AnthropicNotation
from harness.models.demo import NAME as DEMO
from harness.models.demo import DemoModel
from harness.models.embedding import EmbeddingEndpoint
from harness.models.metered import MeteredModel
from harness.models.port import Model
from harness.models.retrying import RetryingModel
from harness.runtime.async_bridge import LoopThread
from harness.runtime.settings import Settings
from harness.runtime.templates import workspace_files
from harness.sandboxes.bubblewrap import Bubblewrap
from harness.sandboxes.bundled_programs import ripgrep
from harness.sandboxes.port import Sandbox
from harness.sandboxes.record import SANDBOXES, SandboxRecord
from harness.sync.background_sync import BackgroundSync
from harness.sync.background_watch import BackgroundWatch, all_of, log_watch_event
from harness.sync.local_copies import LocalCopies
from harness.sync.record_deletion import RecordDeletion
from harness.sync.registry_records import record_adapters
from harness.sync.registry_state import RegistryState
from harness.sync.registry_sync import RecordAdapter, RegistrySync
from harness.tools.bash import BASH
from harness.tools.custom import CustomTool, custom_tools
from harness.tools.edit import EDIT
from harness.tools.glob import GLOB
from harness.tools.grep import GREP
from harness.tools.port import AnyTool
from harness.tools.programs import ToolPrograms
from harness.tools.read import READ
from harness.tools.read_result import READ_RESULT
from harness.tools.recall import RECALL
from harness.tools.stored_results import StoredResults
from harness.tools.write import WRITE
from harness.transcripts.transcript import Transcript
from harness.turns.broadcast import Broadcaster
from harness.turns.dispatcher import Dispatcher
from workspaces.accounts.account import Accounts, OwnAccount, Principal
from workspaces.accounts.key import Keys
from workspaces.accounts.record_catalog import Catalog, partition_of
from workspaces.accounts.user import Users
from workspaces.clock import Clock, SystemClock
from workspaces.coordination.claim import Claims
from workspaces.coordination.lease import Leases
from workspaces.errors import Failure, Refused
from workspaces.home.locations import are_shared, bucket_at, records_at
from workspaces.home.workspaces import SET_PLACE, Workspaces
from workspaces.ids import AccountId, ConversationId, WorkspaceId
from workspaces.remote.bucket import SharedBucket
from workspaces.remote.registry import RegistryKind
from workspaces.search.embeddings import Embedder
from workspaces.storage.blobs import BlobStore
from workspaces.storage.records import RecordStore
from workspaces.tree.directory import FileBlobs
from workspaces.workspace.watch import WatchEvent
from workspaces.workspace.workspace import Workspace

TOOLS: tuple[AnyTool, ...] = (BASH, READ, GLOB, GREP, WRITE, EDIT, RECALL, READ_RESULT)

PRINCIPALS_MAX = 256
"""How many principals' rooms are kept furnished; making them anew costs a few objects and no I/O."""

WORKSHOP_S = 10.0
"""What was lacking may have been put right by then. A self-test that fails takes longer than all else that
is done before a turn's first request."""


@dataclass(frozen=True, slots=True)
class PrincipalServices:
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
    agents: AgentCatalog
    conversations: Conversations
    jobs: Jobs
    deletion: RecordDeletion
    usage: AccountUsage
    dispatcher: Dispatcher
    registry_sync: RegistrySync | None
    """How its records become the same on all machines; None where nothing is shared."""


class Application:
    """What all principals of a home share: its settings, its stores, its jobs, and rooms for each."""

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
    ) -> None:
        self.tools = (*TOOLS, *custom_tools(tools, (tool.name for tool in TOOLS)))
        self.settings = settings
        self.clock = clock
        self.records = records
        self.accounts = Accounts(records, clock)
        self.ledger = Ledger(records, clock, _prices(settings))
        self.allowance = AccountLimiter(records, clock, self.accounts, self.ledger)
        self._clients = _clients(settings)
        self.notation = AnthropicNotation()
        self.jobs = Jobs(records, clock)
        self.runner = JobRunner(
            self.jobs, job_kinds(self._rooms_of_job, settings.home.machine), clock
        )
        self.place = place
        self.audience = Broadcaster()
        self._memories = MemoryCache()
        self.rooms = lru_cache(maxsize=PRINCIPALS_MAX)(self._furnish)
        self._large = large
        self._leases = Leases(records, clock)
        self._model = model
        self._embedder = embedder
        self.sandbox = sandbox
        self._workshop: ToolPrograms | None = None
        self._ask_again_at = math.inf
        self._examining = threading.Lock()

    def owner(self) -> Principal:
        """The owner of the home's default account."""
        return self.accounts.owner(self.accounts.default())

    def programs(self) -> ToolPrograms:
        """With a sandbox, if there is one that confines here and now. Not to be called by an event loop:
        it waits for the self-test."""
        with self._examining:
            now = self.clock.monotonic()
            if self._workshop is None or now >= self._ask_again_at:
                self._workshop = self._examined()
                is_whole = self._workshop.sandbox is not None and self._workshop.ripgrep is not None
                self._ask_again_at = math.inf if is_whole else now + WORKSHOP_S
            return self._workshop

    def _examined(self) -> ToolPrograms:
        loop = LoopThread()
        try:
            found = loop.run(self.sandbox.check())
        finally:
            loop.close()
        if not found.works:
            return ToolPrograms(None, ripgrep(None))
        try:
            return ToolPrograms(self.sandbox, ripgrep(self.settings.home))
        except Failure:  # the disk is full, say: no reason for a turn to fail
            return ToolPrograms(self.sandbox, None)

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()
        self.records.close()
        if self.place is not None:
            self.place.close()

    def _rooms_of_job(self, job: Job) -> PrincipalServices:
        """What is due later is due in the name of whoever wanted it."""
        account_id, user_id = job.payload["accountId"], job.payload["userId"]
        return self.rooms(self.accounts.member(account_id, user_id))

    def _furnish(self, principal: Principal) -> PrincipalServices:
        settings, clock, records = self.settings, self.clock, self.records
        account_id, may_change = principal.account_id, principal.may_configure
        only = None if may_change else principal.user_id
        users = Users(account_id, records, clock, may_change=may_change, only=only)
        keys = Keys(account_id, records, clock, may_change=may_change)
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
            revised=Flushing(principal, self.jobs, settings.home.machine, clock),
            is_over=partial(self._is_over, account_id),
        )
        sandboxes = Catalog(
            SANDBOXES, partition_of(account_id), records, clock, may_change=may_change
        )
        agents = AgentCatalog(
            principal,
            records,
            clock,
            workspaces=workspaces,
            sandboxes=sandboxes,
            tool_names=(tool.name for tool in self.tools),
        )
        conversations = Conversations(
            principal, records, self._large, clock, leases=self._leases, jobs=self.jobs
        )
        inbox = EventQueue(
            principal,
            records,
            self._large,
            clock,
            conversations=conversations,
            claims=Claims(records, clock),
            leases=self._leases,
            jobs=self.jobs,
        )
        deletion = RecordDeletion(
            principal,
            self.accounts,
            users,
            keys,
            workspaces,
            sandboxes,
            agents,
            conversations,
            self.ledger,
            self.allowance,
            clock,
            None if self.place is None else self.place.registry(account_id),
        )
        ingress = Dispatcher(
            clock,
            agents,
            conversations,
            inbox,
            self._leases,
            self.tools,
            self.allowance,
            partial(self.open_model, principal),
            self.programs,
            self._results,
            lambda model: self.ledger.prices.find(model),
            partial(self._follow, account_id),
            self.audience,
            self._memories,
        )
        own = record_adapters(
            principal, self.accounts, users, workspaces, sandboxes, agents, deletion
        )
        return PrincipalServices(
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
            deletion,
            AccountUsage(principal, self.ledger),
            ingress,
            self._following(account_id, workspaces, own) if may_change else None,
        )

    def _following(
        self,
        account_id: AccountId,
        workspaces: Workspaces,
        own: Mapping[RegistryKind, RecordAdapter],
    ) -> RegistrySync | None:
        if self.place is None:
            return None
        return RegistrySync(
            self.place.registry(account_id),
            RegistryState(account_id, self.place.location, self.records),
            self.settings.home,
            self.clock,
            own,
            sweep=workspaces.sweep,
            here_decides=are_shared(self.settings.records),
        )

    def _follow(self, account_id: AccountId) -> None:
        """Before a turn: what other machines have made of the records of its account."""
        if self.place is not None:
            rooms = self.rooms(self.accounts.owner(self.accounts.get(account_id)))
            if rooms.registry_sync is not None:
                rooms.registry_sync.sync_if_due()

    def _is_over(self, account_id: AccountId, workspace_id: WorkspaceId) -> bool:
        following = self.rooms(self.accounts.owner(self.accounts.get(account_id))).registry_sync
        return following is not None and following.is_over(workspace_id)

    def _results(self, conversation_id: ConversationId) -> StoredResults:
        transcript = Transcript(conversation_id, self.records, self._large)
        return StoredResults(conversation_id, self._large, transcript.result)

    def own_model(
        self, own: Model, principal: Principal, agent: AgentRecord, conversation_id: ConversationId
    ) -> Model:
        """One that the caller brings; what it uses up is noted, too."""
        spender = UsageOwner(
            principal.account_id, agent.id, principal.user_id, conversation_id, "turn"
        )
        return self._metered(own, spender)

    def open_model(
        self,
        principal: Principal,
        agent: AgentRecord,
        conversation_id: ConversationId | None = None,
        purpose: UsagePurpose = "turn",
    ) -> Model:
        """The agent's model; what it uses up is noted for the principal."""
        spender = UsageOwner(
            principal.account_id, agent.id, principal.user_id, conversation_id, purpose
        )

        name = agent.config.model or self.settings.model
        if self._model is not None:
            return self._metered(self._model, spender)
        if name == DEMO or self._clients is None:
            return self._metered(DemoModel(), spender)
        return RetryingModel(self._metered(AnthropicModel(name, self._clients), spender))

    def _metered(self, model: Model, spender: UsageOwner) -> Model:
        """A turn notes a reply where it stores it: who writes to a file waits for its one writer in any case.
        Sums that all machines write to are no reply's to wait for."""
        is_stored = spender.purpose == "turn" and not are_shared(self.settings.records)
        return MeteredModel(
            model, spender, self.ledger, self.allowance, caller_records_replies=is_stored
        )


def wire(
    settings: Settings,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    embedder: Embedder | None = None,
    sandbox: Sandbox | None = None,
    tools: Sequence[CustomTool | Callable[..., Any]] = (),
    place: SharedBucket | None = None,
) -> Application:
    """`model` answers for every agent, whatever model it names, `sandbox` runs every command, and `place`
    is where workspaces are shared, whatever the settings say: for tests and for trying out. Every agent
    can call `tools`.
    `embedder` gives recall its vectors, instead of the endpoint of the settings."""
    clock = clock or SystemClock()
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
        embedder=embedder or _embedder(settings),
        sandbox=sandbox or Bubblewrap(settings.home),
        tools=tools,
    )


def background_tasks(house: Application) -> dict[str, BackgroundTask]:
    """What lives as long as `harness up` does, by name."""
    trees, clock = house.settings.home.trees, house.clock
    syncing = BackgroundSync(
        lambda: [_copies(rooms) for rooms in _owners(house)], follow=lambda: _follow_all(house)
    )

    def tell(news: WatchEvent) -> None:
        log_watch_event(news)
        syncing.hear(news)

    watcher = BackgroundWatch(trees, lambda: _workspaces(house), clock, tell)
    return {"jobs": house.runner, "watcher": watcher, "sync": syncing}


def _owners(house: Application) -> Iterator[PrincipalServices]:
    """The rooms of the owners of all accounts."""
    for account in house.accounts.list():
        yield house.rooms(house.accounts.owner(account))


def _follow_all(house: Application) -> None:
    for rooms in _owners(house):
        if rooms.registry_sync is not None:
            rooms.registry_sync.sync_if_reachable()


def _workspaces(house: Application) -> Iterator[Workspace]:
    """Of all accounts."""
    for rooms in _owners(house):
        yield from all_of(_copies(rooms))


def _copies(rooms: PrincipalServices) -> LocalCopies:
    return LocalCopies(rooms.workspaces, rooms.agents)


def _large(settings: Settings, place: SharedBucket | None) -> BlobStore:
    """Where what is too large for a record lies: whoever has the record has it too."""
    if not are_shared(settings.records):
        return FileBlobs(settings.home.entries, settings.home.entries_staging)
    if place is None:
        rule = "must be set: the records are shared with other machines, and files would not be"
        raise Refused("s3", None, rule, remedy=SET_PLACE)
    return place.entries()


def _clients(settings: Settings) -> AnthropicClients | None:
    """None without a key: the demo model answers."""
    if settings.anthropic_api_key is None:
        return None
    return AnthropicClients(settings.anthropic_api_key, settings.anthropic_base_url)


def _prices(settings: Settings) -> Callable[[], Prices]:
    """Return a function that returns the prices. The shipped table is read at the first call."""
    if settings.prices is None:
        return own_prices
    # A file of the user's is read at once, so that a mistake in it is refused at start.
    prices = own_prices().with_file(settings.home.root / settings.prices)
    return lambda: prices


def _embedder(settings: Settings) -> Embedder | None:
    if settings.embeddings_url is None:
        return None
    return EmbeddingEndpoint(
        settings.embeddings_url, settings.embeddings_model, settings.embeddings_key
    )
