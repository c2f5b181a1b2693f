"""What turns are made with: the rooms of one principal, as those at an event see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from harness.agents.agent import AgentRecord, Agents
from harness.billing.ledger import Purpose
from harness.billing.limits import Allowance
from harness.billing.price import Price
from harness.conversations.conversation import Conversations
from harness.conversations.event_queue import Inbox
from harness.memory.memory_cache import Memories
from harness.models.port import Model
from harness.tools.port import AnyTool
from harness.tools.programs import Workshop
from harness.tools.stored_results import Results
from harness.turns.broadcast import Audience
from harness.turns.cancellation import Stop
from workspaces.clock import Clock
from workspaces.coordination.lease import Leases
from workspaces.ids import ConversationId, TurnId


class OpenModel(Protocol):
    """The agent's model, in a conversation, for a purpose."""

    def __call__(
        self,
        agent: AgentRecord,
        conversation_id: ConversationId | None,
        purpose: Purpose = "turn",
        /,
    ) -> Model: ...


@dataclass(frozen=True, slots=True)
class Means:
    clock: Clock
    agents: Agents
    conversations: Conversations
    inbox: Inbox
    leases: Leases
    tools: tuple[AnyTool, ...]
    allowance: Allowance
    open_model: OpenModel
    workshop: Callable[[], Workshop]
    results: Callable[[ConversationId], Results]
    price: Callable[[str], Price | None]
    follow: Callable[[], None]
    """Brings what other machines have made of the account's records."""
    audience: Audience = field(default_factory=Audience)
    memories: Memories = field(default_factory=Memories)
    callers_model: Callable[[AgentRecord, ConversationId], Model] | None = None
    """The one that whoever calls here brings, for that turn: no other process can go on with it."""
    callers_tools: tuple[AnyTool, ...] = ()
    """Those that whoever calls here brings, for the turn that they wait for."""
    stops: dict[TurnId, Stop] = field(default_factory=dict[TurnId, Stop])
    """Of the turns that run here."""
