"""The services of one principal, each built at its first use.

A command imports what its services need, and nothing for the others. What a service needs only now and then,
such as the webhooks of a change, it gets as a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from harness.bootstrap.local_files import forbidden_texts, protection_of_memory
from workspaces.coordination.lazily import lazily
from workspaces.home.locations import are_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.agents.catalog import AgentCatalog
    from harness.agents.record import AgentRecord
    from harness.billing.ledger import AccountUsage
    from harness.bootstrap.services.home_services import HomeServices
    from harness.bootstrap.services.learning_services import LearningServices
    from harness.conversations.conversation import Conversations
    from harness.conversations.event_queue import EventQueue
    from harness.forgetting.forgettings import Forgettings
    from harness.jobs.job import Jobs
    from harness.learning.learning import Learning
    from harness.memorize.memorize import Memorizer
    from harness.memory.blocks.blocks import Blocks
    from harness.memory.facts.fact_catalog import FactCatalog
    from harness.runs.active_memory import ActiveMemories
    from harness.runs.chain import Chains
    from harness.runs.decisions import CardShelf, Decisions
    from harness.runs.run_records import RunRecords
    from harness.runs.runs import Runs
    from harness.runs.scheduler import ScheduleJobs, Scheduler
    from harness.runtime.settings import Settings
    from harness.sandboxes.record import SandboxRecord
    from harness.sync.record_deletion import RecordDeletion
    from harness.sync.registry_sync import RegistrySync
    from harness.turns.dispatcher import Dispatcher
    from harness.turns.turn_dependencies import PromptDependencies
    from harness.turns.turn_observer import TurnObserver
    from harness.webhooks.notices import WebhookNotices
    from harness.webhooks.webhook import Webhooks
    from workspaces.accounts.account import OwnAccount
    from workspaces.accounts.key import Keys
    from workspaces.accounts.principal import Principal
    from workspaces.accounts.record_catalog import Catalog
    from workspaces.accounts.user import Users
    from workspaces.clock import Clock
    from workspaces.forgetting.gate import ForbiddenTexts
    from workspaces.home.account_trash import AccountTrash
    from workspaces.home.forbidding import Forbidding
    from workspaces.home.workspaces import Workspaces
    from workspaces.ids import WorkspaceId
    from workspaces.storage.records import RecordChange, RecordStore
    from workspaces.workspace_record import WorkspaceRecord


class PrincipalServices:
    """The services that one principal of a home uses. Threads may share them."""

    def __init__(
        self,
        principal: Principal,
        home: HomeServices,
        *,
        of_owner: Callable[[], PrincipalServices],
    ) -> None:
        """Store the dependencies. `of_owner` returns the services of the account's owner."""
        self.principal = principal
        self.settings: Settings = home.settings
        self.clock: Clock = home.clock
        self.records: RecordStore = home.records
        self._home = home
        self._of_owner = of_owner

    # The account

    @lazily
    def account(self) -> OwnAccount:
        from workspaces.accounts.account import OwnAccount

        return OwnAccount(self.principal, self._home.accounts)

    @lazily
    def users(self) -> Users:
        from workspaces.accounts.user import Users

        may_change = self.principal.may_configure
        return Users(
            self.principal.account_id,
            self.records,
            self.clock,
            may_change=may_change,
            only=None if may_change else self.principal.user_id,
        )

    @lazily
    def keys(self) -> Keys:
        from workspaces.accounts.key import Keys

        may_change = self.principal.may_configure
        return Keys(self.principal.account_id, self.records, self.clock, may_change=may_change)

    @lazily
    def usage(self) -> AccountUsage:
        from harness.billing.ledger import AccountUsage

        return AccountUsage(self.principal, self._home.ledger)

    @lazily
    def jobs(self) -> Jobs:
        return self._home.jobs

    @lazily
    def webhooks(self) -> Webhooks:
        from harness.webhooks.webhook import Webhooks

        may_change = self.principal.may_configure
        return Webhooks(self.principal.account_id, self.records, self.clock, may_change=may_change)

    @lazily
    def notices(self) -> WebhookNotices:
        from harness.webhooks.notices import WebhookNotices

        return WebhookNotices(self.principal, self.webhooks, self.jobs, self.clock)

    # Workspaces

    @lazily
    def forbidden(self) -> ForbiddenTexts:
        """The gate before whatever is stored."""
        from workspaces.forgetting.rule_records import RuleRecords

        may_change = self.principal.may_configure
        return forbidden_texts(
            RuleRecords(self.principal.account_id, self.records, self.clock, may_change=may_change)
        )

    @lazily
    def workspaces(self) -> Workspaces:
        from harness.runtime.templates import workspace_files
        from workspaces.home.cards import Cards, card_account
        from workspaces.home.workspaces import Workspaces

        home, account_id = self.settings.home, self.principal.account_id
        return Workspaces(
            self.principal,
            home,
            self.records,
            self.clock,
            partial(workspace_files, own=home.templates),
            embedder=self._home.embedder,
            place=self._home.place,
            are_records_shared=are_shared(self.settings.records),
            revised=self._revised,
            is_over=self._is_over,
            cards=Cards(home, lambda: card_account(self._home.accounts, account_id)),
            protection=protection_of_memory(),
            forbidden=self.forbidden,
        )

    @lazily
    def forbidding(self) -> Forbidding:
        from workspaces.home.forbidding import Forbidding

        return Forbidding(self.forbidden, self.workspaces, self.principal)

    @lazily
    def trash(self) -> AccountTrash:
        from workspaces.home.account_trash import AccountTrash

        return AccountTrash(self.principal, self.settings.home, self.workspaces, self.clock)

    @lazily
    def forgettings(self) -> Forgettings:
        from harness.bootstrap.services.forgettings import open_forgettings

        return open_forgettings(
            self.principal,
            self.settings,
            records=self.records,
            large=self._home.large,
            clock=self.clock,
            jobs=self.jobs,
            workspaces=self.workspaces,
            conversations=self.conversations,
            rules=self.forbidden.records,
            place=self._home.place,
            publish=self._publish_records,
        )

    # Agents and what they remember

    @lazily
    def sandboxes(self) -> Catalog[SandboxRecord]:
        from harness.sandboxes.record import SANDBOXES
        from workspaces.accounts.record_catalog import Catalog
        from workspaces.accounts.stored_items import partition_of

        partition, may_change = (
            partition_of(self.principal.account_id),
            self.principal.may_configure,
        )
        return Catalog(SANDBOXES, partition, self.records, self.clock, may_change=may_change)

    @lazily
    def agents(self) -> AgentCatalog:
        from harness.agents.catalog import AgentCatalog

        return AgentCatalog(
            self.principal,
            self.records,
            self.clock,
            workspaces=self.workspaces,
            sandboxes=self.sandboxes,
            tool_names=lambda: (tool.name for tool in self._home.tools),
            check_model=lambda name, field: self._home.models.check_name(name, field),
            check_card=lambda name, field: self.cards.check(name, field),
            also=self._changed_with_agent,
        )

    @lazily
    def blocks(self) -> Blocks:
        from harness.memory.blocks.blocks import Blocks

        return Blocks(
            self.principal,
            self.workspaces,
            agent_id_of=self.agents.id_of,
            agent_ids=self.agents.ids,
            sync_records=self._sync_records,
        )

    @lazily
    def facts(self) -> FactCatalog:
        from harness.memory.facts.fact_catalog import FactCatalog

        return FactCatalog(
            self.principal,
            self.workspaces,
            self.agents.id_of,
            self._home.fact_indexes,
            self.settings.fact_secrets == "allow",
        )

    @lazily
    def memorizer(self) -> Memorizer:
        from harness.bootstrap.services.memorizer import open_memorizer

        return open_memorizer(
            self.facts,
            self.conversations,
            self.settings,
            agent_ids=self.agents.ids,
            records=self.records,
            large=self._home.large,
            clock=self.clock,
            forbidden=self.forbidden,
        )

    # Conversations, turns and runs

    @lazily
    def conversations(self) -> Conversations:
        from harness.conversations.conversation import Conversations

        return Conversations(
            self.principal,
            self.records,
            self._home.large,
            self.clock,
            leases=self._home.leases,
            jobs=self.jobs,
        )

    @lazily
    def event_queue(self) -> EventQueue:
        from harness.conversations.event_queue import EventQueue

        return EventQueue(self.conversations, self.forbidden.marking)

    @lazily
    def prompt_dependencies(self) -> PromptDependencies:
        from harness.turns.turn_dependencies import PromptDependencies

        home = self._home
        return PromptDependencies(
            clock=self.clock,
            agents=self.agents,
            blocks=self.blocks,
            open_conversations=lambda: self.conversations,
            tools=home.tools,
            model_name=home.models.name_of,
            programs=home.programs,
            results=home.results,
            publish_pending=self._sync_records,
            memory_cache=home.memory_cache,
            fact_indexes=home.fact_indexes,
        )

    @lazily
    def dispatcher(self) -> Dispatcher:
        from harness.turns.dispatcher import Dispatcher
        from harness.turns.turn_observer import TurnObservers

        home, prompt = self._home, self.prompt_dependencies
        return Dispatcher(
            **{one.name: getattr(prompt, one.name) for one in fields(prompt)},
            conversations=self.conversations,
            event_queue=self.event_queue,
            open_model=partial(home.models.open, self.principal, marks=self.forbidden),
            leases=home.leases,
            limiter=home.limiter,
            marks=self.forbidden,
            price=lambda model: home.ledger.prices.find(model),
            broadcaster=home.broadcaster,
            observer=TurnObservers(lambda: self.turn_observers),
        )

    @lazily
    def turn_observers(self) -> tuple[TurnObserver, ...]:
        """The observers of turns: runs, learning and webhooks."""
        from harness.runs.run_turns import RunTurns

        runs = RunTurns(
            self.run_records,
            self.active_memories,
            self.conversations,
            self.agents,
            lambda: self.decisions,
            self.clock,
        )
        return (runs, self.learning_services.observer, self.notices)

    @lazily
    def active_memories(self) -> ActiveMemories:
        from harness.runs.active_memory import ActiveMemories

        return ActiveMemories(self.principal.account_id, self.records, self.clock)

    @lazily
    def run_records(self) -> RunRecords:
        from harness.runs.run_records import RunRecords

        return RunRecords(self.principal, self.records, self._home.large, self.jobs, self.clock)

    @lazily
    def runs(self) -> Runs:
        from harness.runs.runs import Runs

        return Runs(
            self.principal,
            self.run_records,
            self.active_memories,
            self.agents,
            self.dispatcher,
            decisions=self.decisions,
            clock=self.clock,
            mark=self.forbidden.marked,
        )

    @lazily
    def chains(self) -> Chains:
        from harness.runs.chain import Chains

        return Chains(self.runs, self.learning_services.chain_ended)

    @lazily
    def cards(self) -> CardShelf:
        """The cards of results."""
        from harness.runs.decisions import CardShelf

        return CardShelf(self.settings.home.root / "cards")

    @lazily
    def decisions(self) -> Decisions:
        from harness.memory.decisions.decision_files import DecisionFiles
        from harness.runs.decisions import Decisions

        files = DecisionFiles(self.workspaces, self.clock)
        return Decisions(self.run_records, files, self.cards, self.clock)

    @lazily
    def schedule_jobs(self) -> ScheduleJobs:
        from harness.runs.scheduler import ScheduleJobs

        return ScheduleJobs(self.principal, self.jobs, self.clock)

    @lazily
    def scheduler(self) -> Scheduler:
        from harness.runs.scheduler import Scheduler

        place, settings = self._home.place, self.settings
        # machines that share the bucket but not their records claim a tick in the bucket
        are_apart = place is not None and not are_shared(settings.records)
        ticks = place.ticks(self.principal.account_id) if place and are_apart else None
        return Scheduler(
            self.agents, self.runs, self.schedule_jobs, self.clock, settings.home.machine, ticks
        )

    @lazily
    def learning_services(self) -> LearningServices:
        from harness.bootstrap.services.learning_services import LearningServices

        home = self._home
        return LearningServices(
            principal=self.principal,
            agents=self.agents,
            blocks=self.blocks,
            facts=lambda: self.facts,
            conversations=self.conversations,
            runs=self.run_records,
            limit=lambda: home.learning_limit,
            ledger=home.ledger,
            open_model=partial(home.models.open_small, self.principal, marks=self.forbidden),
        )

    @lazily
    def learning(self) -> Learning:
        return self.learning_services.learning

    # The records of other machines

    @lazily
    def deletion(self) -> RecordDeletion:
        from harness.runs.scheduler import delete_runs_of
        from harness.sync.record_deletion import RecordDeletion
        from harness.sync.registry_state import RegistryState

        home, place = self._home, self._home.place
        return RecordDeletion(
            principal=self.principal,
            accounts=home.accounts,
            users=self.users,
            keys=self.keys,
            workspaces=self.workspaces,
            sandboxes=self.sandboxes,
            agents=self.agents,
            conversations=self.conversations,
            ledger=home.ledger,
            limiter=home.limiter,
            clock=self.clock,
            registry=None if place is None else place.registry(self.principal.account_id),
            registry_state=None
            if place is None
            else RegistryState(self.principal.account_id, place.location, self.records),
            forget_webhooks=self.webhooks.forget,
            forget_rules=self.forgettings.erase,
            delete_archives=self.memorizer.archives.delete_of,
            delete_runs=partial(
                delete_runs_of, self.run_records, self.active_memories, self.schedule_jobs
            ),
        )

    @lazily
    def registry_sync(self) -> RegistrySync | None:
        """The sync of the account's records between machines. None where nothing is shared."""
        place = self._home.place
        if place is None or not self.principal.may_configure:
            return None
        from harness.sync.registry_records import record_adapters
        from harness.sync.registry_state import RegistryState
        from harness.sync.registry_sync import RegistrySync

        account_id = self.principal.account_id
        return RegistrySync(
            place.registry(account_id),
            RegistryState(account_id, place.location, self.records),
            self.settings.home,
            self.clock,
            record_adapters(
                principal=self.principal,
                accounts=self._home.accounts,
                users=self.users,
                workspaces=self.workspaces,
                sandboxes=self.sandboxes,
                agents=self.agents,
                deletion=self.deletion,
            ),
            sweep=self.workspaces.sweep,
            here_decides=are_shared(self.settings.records),
            rules=place.rules(account_id, self.forgettings.rules),
            heard=self.forgettings.hear,
            introduce=self.forgettings.note_machine,
        )

    def _owners_sync(self) -> RegistrySync | None:
        """Return the sync of the account's records, which acts as the account's owner."""
        return None if self._home.place is None else self._of_owner().registry_sync

    def _sync_records(self) -> None:
        """Sync the account's records before a turn, to see the changes of other machines."""
        if (registry_sync := self._owners_sync()) is not None:
            registry_sync.sync_if_due()

    def _publish_records(self) -> None:
        """Sync the account's records now, to publish the changes of this machine."""
        if (registry_sync := self._owners_sync()) is not None:
            registry_sync.sync()

    def _is_over(self, workspace_id: WorkspaceId) -> bool:
        registry_sync = self._owners_sync()
        return registry_sync is not None and registry_sync.is_over(workspace_id)

    # What follows from a change

    def _revised(self, workspace: WorkspaceRecord) -> None:
        """Enqueue what follows from a new revision: notices, and a push where the workspace is shared."""
        self.notices.memory_changed(workspace)
        if self._home.place is not None:
            self._flushing(workspace)

    @lazily
    def _flushing(self) -> Callable[[WorkspaceRecord], None]:
        from harness.bootstrap.services.history_jobs import Flushing

        return Flushing(self.principal, self.jobs, self.settings.home.machine, self.clock)

    def _changed_with_agent(
        self, agent: AgentRecord, before: AgentRecord | None
    ) -> Sequence[RecordChange]:
        """Return the changes to write with an agent's record: its active memory and its schedule."""
        return (
            *self.active_memories.toggled(agent, before),
            *self.schedule_jobs.changed(agent, before),
        )
