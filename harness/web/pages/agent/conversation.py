"""A conversation: its transcript turn by turn, what the model was shown in each turn, fork, reset, export."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response, StreamingResponse

from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.context.part import memory_of
from harness.conversations.conversation import Conversation
from harness.conversations.export import exported
from harness.messages.event import check_key
from harness.turns.explanation import explain
from harness.web.http.caller import Caller
from harness.web.pages.agent.transcript_view import turns_of
from harness.web.pages.parts.form import Form
from harness.web.pages.parts.rendering import led_to, link, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.talk.conversations import PathConversation
from workspaces.errors import Forbidden, NotFound, Refused

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/c/{id}")

ENTRIES_MAX = 40
"""Entries on one page."""

SHOWN_TEXT_CHARACTERS_MAX = 30_000
"""Characters of the prompt's text that one step shows. `harness explain --text` prints all of it."""

STEPS_MAX = 50
"""Steps of one turn on a page."""


@router.get("", response_model=None)
def conversation_page(
    request: Request,
    caller: Caller,
    conversation: PathConversation,
    after: str = "",
    before: str = "",
) -> Response:
    """Show the newest entries, those before an entry, or those after one."""
    transcript = caller.conversations.transcript(conversation)
    if after:
        entries = transcript.page(ENTRIES_MAX, after=entry_number(after))
    else:
        limit = entry_number(before) if before else None
        entries = transcript.page(ENTRIES_MAX, after=limit, backwards=True)[::-1]
    newest = transcript.newest()
    return shown(
        request,
        "conversation.html",
        caller=caller,
        conversation=conversation,
        agent=agent_of(caller, conversation),
        turns=turns_of(entries, caller.conversations.pending(conversation)),
        sessions={one.first: one for one in transcript.sessions()},
        first=entries[0].number if entries else 0,
        last=entries[-1].number if entries else 0,
        all=newest.number if newest else 0,
        places=places_of(caller, conversation),
    )


@router.get("/turns/{turn}", response_model=None)
def turn_page(
    request: Request,
    caller: Caller,
    conversation: PathConversation,
    turn: Annotated[str, Path(max_length=100)],
    text: str = "",
) -> Response:
    """Show the receipt of each step of a turn: what the model was shown, and from which revision."""
    if not caller.principal.may_configure:
        raise Forbidden("see prompts")
    explanation = explain(conversation, caller.agents, caller.conversations)
    (explained,) = explanation.turns(turn)
    steps = explained.receipts[:STEPS_MAX]
    return shown(
        request,
        "receipts.html",
        caller=caller,
        conversation=conversation,
        agent=agent_of(caller, conversation),
        turn=explained,
        steps=[
            {
                "receipt": one,
                "reason": explanation.reason(one),
                "counted": explanation.counted(one),
                "is_same": number > 0 and one.parts == steps[number - 1].parts,
            }
            for number, one in enumerate(steps)
        ],
        entered=[(one, explanation.revisions(one)) for one in explained.entered],
        text=explanation.text(steps[-1])[:SHOWN_TEXT_CHARACTERS_MAX] if text else None,
        places=places_of(caller, conversation),
    )


@router.get("/export", response_model=None)
def export(caller: Caller, conversation: PathConversation) -> Response:
    """Send the conversation as JSON lines, which `harness conversation import` reads."""
    conversations = caller.conversations

    def lines() -> Iterator[str]:
        transcript = conversations.transcript(conversation)
        for line in exported(conversation, transcript, conversations.carried(conversation)):
            yield json.dumps(line, ensure_ascii=False) + "\n"

    disposition = f"attachment; filename*=UTF-8''{link(conversation.id)}.jsonl"
    headers = {"Content-Disposition": disposition}
    return StreamingResponse(lines(), headers=headers, media_type="application/x-ndjson")


@router.post("/fork", response_model=None)
def fork(request: Request, caller: Caller, conversation: PathConversation, form: Form) -> Response:
    """Copy the conversation up to an entry, under another key."""
    at = entry_number(form.text("at")) if form.text("at") else None
    made = caller.conversations.fork(conversation, check_key(form.text("key"), "key"), at)
    return led_to(request, f"/c/{made.id}", said="forked")


@router.post("/reset", response_model=None)
def reset(request: Request, caller: Caller, conversation: PathConversation, form: Form) -> Response:
    """Begin a new session. The transcript stays; the next turn begins without it."""
    caller.conversations.reset(conversation)
    if form.text("back") == "chat":
        path = f"/a/{conversation.agent_id}"
        return led_to(request, path, c=conversation.key, said="reset")
    return led_to(request, f"/c/{conversation.id}", said="reset")


def agent_of(caller: PrincipalServices, conversation: Conversation) -> AgentRecord | None:
    return agent_of_id(caller, conversation.agent_id)


def agent_of_id(caller: PrincipalServices, agent_id: str) -> AgentRecord | None:
    """Return an agent, or None if it was deleted."""
    try:
        return caller.agents.get(agent_id)
    except NotFound:
        return None


def places_of(caller: PrincipalServices, conversation: Conversation) -> dict[str, str]:
    """Return the workspaces that the agent mounts, by mount name and by the name of their memory."""
    agent = agent_of(caller, conversation)
    if agent is None or not caller.principal.may_configure:
        return {}
    places: dict[str, str] = {}
    for mount in agent.config.workspaces:
        places[mount.name] = mount.workspace_id
        places[memory_of(mount.name)] = mount.workspace_id
    return places


def entry_number(text: str) -> int:
    """Return the number of an entry from a query or a form."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12):
        raise Refused("entry", text, "must be the number of an entry")
    return int(text)
