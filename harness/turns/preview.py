"""Previews: exactly what the next turn of a conversation would send, before anything is said."""

from __future__ import annotations

from dataclasses import replace

from harness.agents.agent import AgentRecord
from harness.messages.message import user
from harness.prompts.prompt_request import PromptRequest, build_request
from harness.prompts.prompt_sources import PromptSources, ViewOf, newest
from harness.sync.turn_sync import pull
from harness.tools.port import Toolset
from harness.tools.tool_context import ToolContext
from harness.transcripts.session import new_session
from harness.transcripts.transcript import Entry, TranscriptWindow
from harness.turns.dispatcher import Dispatcher
from workspaces.ids import ConversationId, TurnId
from workspaces.revision import Author
from workspaces.timestamp import stamp_of

_NEW = ConversationId("")
"""Of a conversation that has not begun: nothing is kept for it, and no tool is called."""

_NEXT = TurnId("")
"""The turn that would begin."""


def preview(
    ingress: Dispatcher,
    agent: AgentRecord,
    *,
    conversation: str | None = None,
    message: str | None = None,
    policy: str = "",
    view_of: ViewOf = newest,
) -> PromptRequest:
    """As if `message` were said now in the conversation with this key: a first turn, when there is none.

    Nothing is stored by it, but that workspaces are brought up to date and a person's changes by hand
    become revisions, as before a turn.
    """
    ingress.publish_pending()
    agent = ingress.agents.get(agent.id)
    mounts = ingress.agents.bindings(agent)
    pull(mounts)
    briefing = PromptSources(
        agent.config,
        mounts,
        model=ingress.open_model(agent, None).name,
        policy=policy,
        view_of=view_of,
    )
    found = ingress.conversations.find(agent.id, conversation) if conversation else None
    results = ingress.results(found.id if found else _NEW)
    desk = ToolContext(mounts, _nobody, programs=ingress.programs(), results=results)
    tools = Toolset(ingress.tools, desk, agent.config.tools).specs()
    now = ingress.clock.now()
    if found is None:
        window, held = TranscriptWindow(new_session(1, stamp_of(now)), ()), None
    else:
        window = ingress.conversations.transcript(found).window()
        held = ingress.conversations.showing(found).held()
    if message is not None:
        said = Entry(window.next_number, stamp_of(now), _NEXT, user(message))
        window = replace(window, entries=(*window.entries, said))
    return build_request(briefing, held, window, tools, at=now, running=_NEXT)


def _nobody(call_id: str) -> Author:
    """Nothing is called in a preview."""
    return Author("nobody", call_id, "turn")
