"""Preview exactly what the next turn of a conversation would send, before any message is sent."""

from __future__ import annotations

from dataclasses import replace

from harness.agents.record import AgentRecord
from harness.messages.memory_policy import MemoryPolicy
from harness.messages.message import user
from harness.prompts.prompt_request import PromptRequest, build_request
from harness.prompts.prompt_sources import PromptSources, ViewOf, newest
from harness.sync.turn_sync import pull
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Entry, TranscriptWindow
from harness.turns.turn_dependencies import PromptDependencies
from harness.turns.turn_memory import agent_blocks, effective_policy, turn_facts, turn_memory
from workspaces.ids import ConversationId, TurnId
from workspaces.revision import Author
from workspaces.timestamp import stamp_of

_NEW = ConversationId("")
"""Id of a conversation that has not begun. Nothing is stored for it, and no tool is called."""

_NEXT = TurnId("")
"""Id of the turn that would begin."""


def preview(
    dependencies: PromptDependencies,
    agent: AgentRecord,
    *,
    conversation: str | None = None,
    message: str | None = None,
    policy: MemoryPolicy | None = None,
    view_of: ViewOf = newest,
) -> PromptRequest:
    """Return the request that `message` would cause in the conversation with this key.

    The turn would be the first one if there is no such conversation. `policy` is the memory policy that the
    turn would ask for. The preview stores nothing, with two exceptions that every turn makes too: workspaces
    are pulled, and manual edits are committed.
    """
    dependencies.publish_pending()
    agent = dependencies.agents.get(agent.id)
    mounts = dependencies.agents.bindings(agent)
    chosen = effective_policy(agent, policy)
    memory = turn_memory(dependencies.blocks, agent, chosen)
    pull(mounts, memory.workspaces())
    sources = PromptSources(
        agent.config,
        mounts,
        model=dependencies.model_name(agent),
        policy=chosen.comparison_key,
        blocks=memory.core,
        facts=turn_facts(dependencies, agent, mounts, view_of),
        view_of=view_of,
    )
    conversations = dependencies.open_conversations() if conversation else None
    existing = conversations.find(agent.id, conversation or "") if conversations else None
    results = dependencies.results(existing.id if existing else _NEW)
    tool_context = ToolContext(
        mounts,
        _no_author,
        programs=dependencies.programs(),
        results=results,
        blocks=agent_blocks(dependencies.blocks, dependencies.agents, agent),
    )
    tools = Toolset(dependencies.tools, tool_context, agent.config.tools).specs()
    now = dependencies.clock.now()
    if conversations is None or existing is None:
        window, shown = TranscriptWindow(new_session(1, stamp_of(now)), ()), None
    else:
        window = conversations.transcript(existing).window()
        shown = conversations.prompt_log(existing).held()
    if message is not None:
        said = Entry(
            window.next_number,
            stamp_of(now),
            _NEXT,
            user(message),
            reminder=memory.reminders.of(message),
        )
        window = replace(window, entries=(*window.entries, said))
    return build_request(sources, shown, window, tools, at=now, running=_NEXT)


def _no_author(call_id: str) -> Author:
    """Return a placeholder author: a preview calls no tool."""
    return Author("nobody", call_id, "turn")
