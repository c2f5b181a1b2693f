"""Previews: exactly what the next turn of a conversation would send, before anything is said."""

from __future__ import annotations

from harness.agent import AgentRecord
from harness.briefing import Briefing, ViewOf, newest
from harness.context.assemble import Numbered
from harness.freshness import pull
from harness.ingress import Ingress
from harness.message import user
from harness.question import Question, put
from harness.session import new_session
from harness.tools.desk import Desk
from harness.tools.port import Toolset
from workspaces.ids import ConversationId
from workspaces.revision import Author
from workspaces.stamp import stamp_of

_NEW = ConversationId("")
"""Of a conversation that has not begun: nothing is kept for it, and no tool is called."""


def preview(
    ingress: Ingress,
    agent: AgentRecord,
    *,
    conversation: str | None = None,
    message: str | None = None,
    policy: str = "",
    view_of: ViewOf = newest,
) -> Question:
    """As if `message` were said now in the conversation with this key: a first turn, when there is none.

    Nothing is stored by it, but that workspaces are brought up to date and a person's changes by hand
    become revisions, as before a turn.
    """
    mounts = ingress.agents.bindings(agent)
    pull(mounts)
    briefing = Briefing(
        agent.config,
        mounts,
        model=ingress.open_model(agent, None).name,
        policy=policy,
        view_of=view_of,
    )
    found = ingress.conversations.find(agent.id, conversation) if conversation else None
    results = ingress.results(found.id if found else _NEW)
    desk = Desk(mounts, _nobody, workshop=ingress.workshop(), results=results)
    tools = Toolset(ingress.tools, desk).specs()
    now = ingress.clock.now()
    if found is None:
        session, held, entries, number = new_session(1, stamp_of(now)), None, (), 1
    else:
        window = ingress.conversations.transcript(found).window()
        session, entries, number = window.session, window.entries, window.next_number
        held = ingress.conversations.showing(found).held()
    messages: list[Numbered] = [(entry.number, entry.message) for entry in entries]
    if message is not None:
        messages.append((number, user(message)))
    kept = [text for entry in entries for text in entry.system]
    return put(briefing, held, messages, tools, session=session, at=now, kept=kept)


def _nobody(call_id: str) -> Author:
    """Nothing is called in a preview."""
    return Author("nobody", call_id, "turn")
