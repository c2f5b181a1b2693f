"""The services that all principals of a home share, each built at its first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workspaces.coordination.lazily import is_built, lazily

if TYPE_CHECKING:
    from harness.billing.ledger import Ledger
    from harness.billing.limits import AccountLimiter
    from harness.bootstrap.services.model_catalog import ModelCatalog
    from harness.jobs.job import Jobs
    from harness.learning.budget import DailyLimit
    from harness.memory.facts.fact_index import FactIndexes
    from harness.memory.memory_cache import MemoryCache
    from harness.models.anthropic.wire_format import AnthropicNotation
    from harness.models.port import Model
    from harness.runtime.settings import Settings
    from harness.sandboxes.port import Sandbox
    from harness.tools.custom import CustomTool
    from harness.tools.port import AnyTool
    from harness.tools.programs import ToolPrograms
    from harness.tools.stored_results import StoredResults
    from harness.turns.broadcast import Broadcaster
    from workspaces.accounts.account import Accounts
    from workspaces.clock import Clock
    from workspaces.coordination.lease import Leases
    from workspaces.ids import ConversationId
    from workspaces.remote.bucket import SharedBucket
    from workspaces.search.embeddings import Embedder
    from workspaces.storage.blobs import BlobStore
    from workspaces.storage.records import RecordStore


class HomeServices:
    """The settings and stores of a home, and the services that belong to no principal."""

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
        sandbox: Sandbox | None,
        own_tools: tuple[CustomTool, ...] = (),
        allows_demo: bool = True,
    ) -> None:
        """Store the dependencies. `large` has the values that are too large for a record."""
        self.settings = settings
        self.records = records
        self.clock = clock
        self.place = place
        self.large = large
        self.embedder = embedder
        self._model = model
        self._sandbox = sandbox
        self._own_tools = own_tools
        self._allows_demo = allows_demo

    def close(self) -> None:
        """Close the stores and the models, if they were used."""
        if is_built(self, "models"):
            self.models.close()
        self.records.close()
        if self.place is not None:
            self.place.close()

    @lazily
    def accounts(self) -> Accounts:
        from workspaces.accounts.account import Accounts

        return Accounts(self.records, self.clock)

    @lazily
    def leases(self) -> Leases:
        from workspaces.coordination.lease import Leases

        return Leases(self.records, self.clock)

    @lazily
    def jobs(self) -> Jobs:
        from harness.jobs.job import Jobs

        return Jobs(self.records, self.clock)

    @lazily
    def ledger(self) -> Ledger:
        from harness.billing.ledger import Ledger
        from harness.billing.price import prices_from

        own = self.settings.home.root / self.settings.prices if self.settings.prices else None
        return Ledger(self.records, self.clock, prices_from(own))

    @lazily
    def limiter(self) -> AccountLimiter:
        from harness.billing.limits import AccountLimiter

        return AccountLimiter(self.records, self.clock, self.accounts, self.ledger)

    @lazily
    def learning_limit(self) -> DailyLimit:
        from harness.learning.budget import DailyLimit

        return DailyLimit(self.accounts, self.ledger)

    @lazily
    def models(self) -> ModelCatalog:
        from harness.bootstrap.services.model_catalog import ModelCatalog

        return ModelCatalog(
            self.settings,
            lambda: self.ledger,
            lambda: self.limiter,
            fixed=self._model,
            allows_demo=self._allows_demo,
        )

    @lazily
    def notation(self) -> AnthropicNotation:
        from harness.models.anthropic.wire_format import AnthropicNotation

        return AnthropicNotation()

    @lazily
    def tools(self) -> tuple[AnyTool, ...]:
        """The tools that every agent has: the built-in ones, and the caller's."""
        from harness.bootstrap.services.builtin_tools import TOOLS

        return (*TOOLS, *self._own_tools)

    @lazily
    def sandbox(self) -> Sandbox:
        from harness.sandboxes.bubblewrap import Bubblewrap

        return self._sandbox or Bubblewrap(self.settings.home)

    @lazily
    def programs(self) -> Callable[[], ToolPrograms]:
        from harness.tools.programs import ProgramSearch

        return ProgramSearch(self.sandbox, self.settings.home, self.clock).find

    @lazily
    def broadcaster(self) -> Broadcaster:
        from harness.turns.broadcast import Broadcaster

        return Broadcaster()

    @lazily
    def memory_cache(self) -> MemoryCache:
        from harness.memory.memory_cache import MemoryCache

        return MemoryCache()

    @lazily
    def fact_indexes(self) -> FactIndexes:
        from harness.memory.facts.fact_index import FactIndexes

        return FactIndexes()

    def results(self, conversation_id: ConversationId) -> StoredResults:
        """Return the stored results of a conversation's tool calls."""
        from harness.tools.stored_results import StoredResults
        from harness.transcripts.transcript import Transcript

        transcript = Transcript(conversation_id, self.records, self.large)
        return StoredResults(conversation_id, self.large, transcript.result)
