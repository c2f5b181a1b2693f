"""A turn that is about to run, with all that it works on: its model, its tools, the memory it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.agents.agent import AgentRecord, missing_mounts
from harness.billing.price import Price
from harness.conversations.conversation import Conversation
from harness.messages.event import Event
from harness.models.port import Model
from harness.prompts.compaction import Compaction
from harness.prompts.prompt_sources import PromptSources
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from harness.sync.turn_sync import is_shared, pull, push
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from harness.transcripts.transcript import Entry, Transcript, TranscriptWindow
from harness.turns.broadcast import Channel
from harness.turns.turn import Turn
from harness.turns.turn_dependencies import TurnDependencies
from workspaces.coordination.lease import Lease, Leases
from workspaces.durability import HERE, Durable
from workspaces.errors import Refused
from workspaces.ids import TurnId
from workspaces.revision import Author


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    turn: Turn
    model: Model
    toolset: Toolset
    compaction: Compaction
    left_out: tuple[str, ...]
    """Mounts that lead nowhere."""

    async def pushed(self, entries: Iterable[Entry], leases: Leases) -> Durable:
        """What was changed with these entries goes out; where it is safe now. LeaseLost: whoever has the
        conversation now brings it out."""
        mounts = self.toolset.context.mounts
        if not is_shared(mounts):
            return HERE
        await run_in_thread(leases.check, self.turn.lease)
        changed = [change.workspace for entry in entries for change in entry.changes]
        return await run_in_new_thread(push, mounts, changed)

    def with_turn(self, turn: Turn) -> PreparedTurn:
        return replace(self, turn=turn)

    def held(self, lease: Lease, transcript: Transcript) -> PreparedTurn:
        """What was prepared before the lease was won, under it."""
        turn = replace(self.turn, lease=lease, transcript=transcript)
        compaction = replace(self.compaction, lease=lease, transcript=transcript)
        return replace(self, turn=turn, compaction=compaction)


def prepare_turn(
    means: TurnDependencies,
    conversation: Conversation,
    lease: Lease,
    stage: Channel,
    event: Event | None,
    turn_id: TurnId,
    first: int | None,
    *,
    caller_waits: bool,
    window: TranscriptWindow | None = None,
) -> PreparedTurn:
    """`first` is the first entry of a turn that was interrupted; `caller_waits`: the caller waits for it, and
    brings what is theirs; `window`: of a conversation that is not there yet."""
    means.publish_pending()
    agent = means.agents.get(conversation.agent_id)
    own_model = means.callers_model if caller_waits else None
    model = (own_model or means.open_model)(agent, conversation.id)
    mounts = means.agents.bindings(agent)
    pull(mounts)
    transcript = means.conversations.transcript(conversation, told=stage.stored)
    window = window or transcript.window()
    stage.begin(window.next_number - 1)
    is_resumed, first = first is not None, window.next_number if first is None else first
    briefing = PromptSources(
        agent.config,
        mounts,
        model=model.name,
        memories=means.memory_cache,
        policy=_policy(event),
    )
    turn = Turn(
        turn_id,
        transcript,
        lease,
        means.clock,
        window.session,
        briefing,
        means.conversations.showing(conversation),
        agent.config.limits,
        tuple(entry for entry in window.entries if entry.number < first),
        first,
        tuple(one for one in window.entries if one.number >= first and one.is_said),
        event.system_once if event else None,
        _price(means, agent, model.name),
        asides=tuple(one for one in window.entries if one.number >= first and not one.is_said),
    )
    seen = {key: version for entry in window.entries for key, version in entry.seen.items()}
    desk = ToolContext(
        mounts,
        _authorship(agent, conversation, turn_id, event, model),
        seen=seen,
        programs=means.programs(),
        results=means.results(conversation.id),
    )
    left_out = tuple(missing_mounts(agent, mounts))
    mine = means.callers_tools if caller_waits else ()
    theirs = (*agent.config.tools, *(event.tools if event else ()))
    toolset = Toolset((*means.tools, *mine), desk, theirs, first=briefing.settle)
    compaction = Compaction(
        agent.config.session.compaction,
        means.open_model(agent, conversation.id, "compaction"),
        toolset,
        transcript,
        turn.prompt_log,
        lease,
        means.clock,
        turn_id,
    )
    return PreparedTurn(
        turn.resumed() if is_resumed else turn, model, toolset, compaction, left_out
    )


def _price(means: TurnDependencies, agent: AgentRecord, model: str) -> Price | None:
    """Refused where a limit cannot be kept."""
    price = means.price(model)
    if agent.config.limits.dollars is not None and price is None:
        rule = "has no price, so the agent's limit `dollars` cannot be kept"
        remedy = "state its price in the file that the setting `prices` names"
        raise Refused("model", model, rule, remedy=remedy)
    return price


def _policy(event: Event | None) -> str:
    return event.memory_policy.comparison_key if event and event.memory_policy else ""


def _authorship(
    agent: AgentRecord,
    conversation: Conversation,
    turn_id: TurnId,
    event: Event | None,
    model: Model,
) -> Callable[[str], Author]:
    trailers = {
        "Agent": agent.id,
        "Conversation": f"{conversation.id} {conversation.key}",
        "Turn": turn_id,
        **({"Event": event.id} if event else {}),
        "Model": model.name,
    }
    return lambda call_id: Author(agent.name, agent.id, "turn", {**trailers, "Call": call_id})
