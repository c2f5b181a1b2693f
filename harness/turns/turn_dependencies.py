"""Declare the services that a turn needs, for one principal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from harness.messages.marking import NO_MARKS, TextMarks

if TYPE_CHECKING:
    from harness.agents.catalog import AgentCatalog
    from harness.agents.record import AgentRecord
    from harness.billing.ledger import UsagePurpose
    from harness.billing.limits import AccountLimiter
    from harness.billing.price import Price
    from harness.conversations.conversation import Conversations
    from harness.conversations.event_queue import EventQueue
    from harness.memory.blocks.blocks import Blocks
    from harness.memory.facts.fact_index import FactIndexes
    from harness.memory.memory_cache import MemoryCache
    from harness.models.port import Model
    from harness.tools.port import AnyTool
    from harness.tools.programs import ToolPrograms
    from harness.tools.stored_results import StoredResults
    from harness.turns.broadcast import Broadcaster
    from harness.turns.cancellation import Cancellation
    from harness.turns.turn_observer import TurnObserver
    from workspaces.clock import Clock
    from workspaces.coordination.lease import Leases
    from workspaces.ids import ConversationId, TurnId


class OpenModel(Protocol):
    """A callable that opens the agent's model, in a conversation, for a purpose."""

    def __call__(
        self,
        agent: AgentRecord,
        conversation_id: ConversationId | None,
        purpose: UsagePurpose = "turn",
        /,
    ) -> Model: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDependencies:
    """The services that the prompt of a turn needs."""

    clock: Clock
    agents: AgentCatalog
    blocks: Blocks
    open_conversations: Callable[[], Conversations]
    tools: tuple[AnyTool, ...]
    model_name: Callable[[AgentRecord], str]
    """Returns the name of the model that answers for an agent."""
    programs: Callable[[], ToolPrograms]
    results: Callable[[ConversationId], StoredResults]
    publish_pending: Callable[[], None]
    """Fetches the account's records that other machines have changed."""
    memory_cache: MemoryCache
    fact_indexes: FactIndexes


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDependencies(PromptDependencies):
    """The services that a whole turn needs."""

    conversations: Conversations
    event_queue: EventQueue
    open_model: OpenModel
    leases: Leases
    limiter: AccountLimiter
    price: Callable[[str], Price | None]
    marks: TextMarks = NO_MARKS
    """Applied to what tools answer, and to the replies of a caller's model, before they are stored."""
    broadcaster: Broadcaster
    observer: TurnObserver
    callers_model: Callable[[AgentRecord, ConversationId], Model] | None = None
    """A model supplied by the caller for its turn. Another process cannot resume a turn that uses it."""
    callers_tools: tuple[AnyTool, ...] = ()
    """Tools supplied by the caller, for the turn that the caller waits for."""
    cancellations: dict[TurnId, Cancellation] = field(
        default_factory=dict["TurnId", "Cancellation"]
    )
    """Cancellations of the turns that run in this process."""
