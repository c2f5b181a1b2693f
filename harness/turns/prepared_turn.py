"""Prepare a turn: open its model, its tools and the memory in its prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.agents.mounts import missing_mounts
from harness.agents.record import AgentRecord
from harness.billing.price import Price
from harness.context.receipt import ShownPart
from harness.conversations.conversation import Conversation
from harness.messages.event import Event
from harness.models.marking import MarkingModel
from harness.models.port import Model
from harness.prompts.compaction import Compaction
from harness.prompts.prompt_sources import PromptSources
from harness.prompts.turn_log import TurnLog
from harness.runtime.async_bridge import run_in_new_thread, run_in_thread
from harness.sync.turn_sync import is_shared, pull, push
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from harness.transcripts.session import Session
from harness.transcripts.transcript import Entry, TranscriptWindow
from harness.turns.turn import Turn
from harness.turns.turn_dependencies import TurnDependencies
from harness.turns.turn_memory import agent_blocks, effective_policy, turn_facts, turn_memory
from workspaces.coordination.lease import Leases
from workspaces.durability import HERE, Durable
from workspaces.errors import NotFound, Refused
from workspaces.ids import TurnId
from workspaces.revision import Author
from workspaces.timestamp import stamp_of


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    turn: Turn
    model: Model
    toolset: Toolset
    compaction: Compaction
    left_out: tuple[str, ...]
    """Mounts whose workspace or sandbox is missing."""

    async def push_changes(self, entries: Iterable[Entry], leases: Leases) -> Durable:
        """Push the changes of these entries to the shared workspaces, and return where they are durable.

        Raises: LeaseLost when another process holds the conversation now; that process pushes the changes.
        """
        mounts = self.toolset.context.mounts
        if not is_shared(mounts):
            return HERE
        await run_in_thread(leases.check, self.turn.log.lease)
        changed = [change.workspace for entry in entries for change in entry.changes]
        return await run_in_new_thread(push, mounts, changed)

    def with_turn(self, turn: Turn) -> PreparedTurn:
        return replace(self, turn=turn)


def prepare_turn(
    dependencies: TurnDependencies,
    conversation: Conversation,
    log: TurnLog,
    event: Event | None,
    turn_id: TurnId,
    *,
    first: int | None = None,
    caller_waits: bool,
    session: Session | None = None,
) -> PreparedTurn:
    """Prepare the turn of an event.

    `first` is the first entry of an interrupted turn. With `caller_waits` the turn gets the caller's own
    model and tools. `session` is the first session of a conversation that does not exist yet.

    Raises: Refused where the agent's dollar limit needs a price that is unknown.
    """
    dependencies.publish_pending()
    agent = dependencies.agents.get(conversation.agent_id)
    own_model = dependencies.callers_model if caller_waits else None
    if own_model is not None:
        model: Model = MarkingModel(own_model(agent, conversation.id), dependencies.marks)
    else:
        model = dependencies.open_model(agent, conversation.id)
    mounts = dependencies.agents.bindings(agent)
    policy = effective_policy(agent, event.memory_policy if event else None)
    memory = turn_memory(dependencies.blocks, agent, policy)
    pull(mounts, memory.workspaces())
    if session is None:
        window = _window(dependencies, conversation, log, is_new=first is None)
    else:
        window = TranscriptWindow(session, ())
    is_resumed, first = first is not None, window.next_number if first is None else first
    sources = PromptSources(
        agent.config,
        mounts,
        model=model.name,
        memories=dependencies.memory_cache,
        policy=policy.comparison_key,
        blocks=memory.core,
        facts=turn_facts(
            dependencies,
            agent,
            mounts,
            hides=dependencies.observer.hides_fact(conversation, event) if event else None,
        ),
    )
    turn = Turn(
        id=turn_id,
        log=log,
        clock=dependencies.clock,
        session=window.session,
        sources=sources,
        limits=agent.config.limits,
        before=tuple(entry for entry in window.entries if entry.number < first),
        first=first,
        entries=tuple(one for one in window.entries if one.number >= first and one.is_said),
        instructions=_instructions(dependencies, conversation, event),
        reminder="" if is_resumed or event is None else memory.reminders.of(event.message.text),
        price=_price(dependencies, agent, model.name),
        asides=tuple(one for one in window.entries if one.number >= first and not one.is_said),
        shown=_shown(dependencies, conversation, event, first),
    )
    seen = {key: version for entry in window.entries for key, version in entry.seen.items()}
    tool_context = ToolContext(
        mounts,
        _authorship(agent, conversation, turn_id, event, model),
        seen=seen,
        programs=dependencies.programs(),
        results=dependencies.results(conversation.id),
        blocks=agent_blocks(dependencies.blocks, dependencies.agents, agent),
    )
    left_out = tuple(missing_mounts(agent, mounts))
    callers_tools = dependencies.callers_tools if caller_waits else ()
    observed_tools = dependencies.observer.tools(conversation, event) if event else ()
    clients_tools = (*agent.config.tools, *(event.tools if event else ()))
    toolset = Toolset(
        (*dependencies.tools, *observed_tools, *callers_tools),
        tool_context,
        clients_tools,
        first=sources.commit_remaining_edits,
        mark=dependencies.marks.marked,
    )
    compaction = Compaction(
        config=agent.config.session.compaction,
        model=dependencies.open_model(agent, conversation.id, "compaction"),
        toolset=toolset,
        log=log,
        clock=dependencies.clock,
        turn_id=turn_id,
    )
    return PreparedTurn(
        turn.resumed() if is_resumed else turn, model, toolset, compaction, left_out
    )


def _instructions(
    dependencies: TurnDependencies, conversation: Conversation, event: Event | None
) -> str | None:
    """Return the instructions for this turn alone: the platform's, and the observer's."""
    if event is None:
        return None
    own = dependencies.observer.instructions(conversation, event)
    return "\n\n".join(text for text in (event.system_once, own) if text) or None


def _shown(
    dependencies: TurnDependencies, conversation: Conversation, event: Event | None, first: int
) -> tuple[ShownPart, ...]:
    """Return the parts of memory that the turn's first message shows."""
    shown = dependencies.observer.shown(conversation, event) if event else ()
    return tuple(replace(part, entry=first) for part in shown)


def _window(
    dependencies: TurnDependencies,
    conversation: Conversation,
    log: TurnLog,
    *,
    is_new: bool,
) -> TranscriptWindow:
    """Return the window of a turn. A new turn begins a new session first, if the observer wants one."""
    observer, now = dependencies.observer, stamp_of(dependencies.clock.now())
    transcript = log.transcript
    if is_new and observer.wants_new_session(conversation, transcript.session()):
        transcript.reset(log.lease, now)
    try:
        return transcript.window()
    except (NotFound, ValueError, KeyError):  # a stored entry is missing or damaged
        if not is_new or not observer.may_replace_session(conversation):
            raise
        transcript.reset(log.lease, now)
        return transcript.window()


def _price(dependencies: TurnDependencies, agent: AgentRecord, model: str) -> Price | None:
    """Return the model's price.

    Raises: Refused when the agent has a dollar limit and the model has no price.
    """
    price = dependencies.price(model)
    if agent.config.limits.dollars is not None and price is None:
        rule = "has no price, so the agent's limit `dollars` cannot be enforced"
        remedy = "add its price to the file named by the setting `prices`"
        raise Refused("model", model, rule, remedy=remedy)
    return price


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
