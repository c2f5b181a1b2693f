"""Previews: exactly what the next turn of a conversation would send, before anything is said."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agent import AgentRecord, Mount
from harness.briefing import Briefing, ViewOf, newest
from harness.context.assemble import Numbered
from harness.ingress import Ingress
from harness.message import user
from harness.question import Question, put
from harness.session import new_session
from harness.tools.desk import Desk
from harness.tools.port import Toolset
from workspaces.ids import ConversationId
from workspaces.revision import Author
from workspaces.stamp import stamp_of


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

    Nothing is stored by it, but that a person's changes by hand become revisions, as before a turn.
    """
    mounts = ingress.agents.bindings(agent)
    briefing = Briefing(
        agent.config,
        mounts,
        model=ingress.open_model(agent, None).name,
        policy=policy,
        view_of=view_of,
    )
    tools = Toolset(ingress.tools, _desk(ingress, mounts)).specs()
    now = ingress.clock.now()
    found = ingress.conversations.find(agent.id, conversation) if conversation else None
    if found is None:
        session, held, entries, number = new_session(1, stamp_of(now)), None, (), 1
    else:
        window = ingress.conversations.transcript(found).window()
        session, entries, number = window.session, window.entries, window.next_number
        held = ingress.conversations.showing(found).held()
    messages: list[Numbered] = [(entry.number, entry.message) for entry in entries]
    if message is not None:
        messages.append((number, user(message)))
    return put(briefing, held, messages, tools, session=session, at=now)


def _desk(ingress: Ingress, mounts: Sequence[Mount]) -> Desk:
    """As a turn has it: what is offered depends on it."""
    results = ingress.results(ConversationId("conv_of_a_preview"))
    return Desk(mounts, _nobody, workshop=ingress.workshop(), results=results)


def _nobody(call_id: str) -> Author:
    """Nothing is called in a preview."""
    return Author("nobody", call_id, "turn")
