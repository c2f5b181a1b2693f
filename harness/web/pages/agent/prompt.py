"""The prompts of an agent, part by part: what the next turn would send, and what earlier ones sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.context.length import Length
from harness.context.part import PromptPart, memory_of
from harness.context.receipt import Receipt
from harness.context.snapshot import ShownState
from harness.conversations.conversation import Conversation
from harness.messages.event import check_key
from harness.turns.preview import preview
from harness.web.http.caller import Caller
from harness.web.pages.agent.conversation import entry_number
from harness.web.pages.agent.transcript_view import cut
from harness.web.pages.parts.rendering import shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.talk.turns import AgentPath
from workspaces.errors import Forbidden, NotFound

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/a/{id}")

PART_CHARACTERS_MAX = 20_000
"""Characters of one part that are shown."""

MESSAGES_MAX = 30
"""The newest messages of the conversation that are shown."""

MESSAGE_CHARACTERS_MAX = 2_000

ASKED_LOOKED_MAX = 60
"""The newest entries in which past messages of the user are looked for."""

ASKED_CHARACTERS_MAX = 90
"""Characters of a past message in the list of those with a prompt of their own."""


@dataclass(frozen=True, slots=True)
class ShownPromptPart:
    """A part of the prompt, or a notice of a change beside a message."""

    source: str
    is_trusted: bool
    text: str
    characters: int
    revision: str | None
    lines_left_out: int
    entries_left_out: int
    unavailable: str | None
    entry: int | None
    x: float
    """Where the part begins in the bar, as a percentage."""
    width: float


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A request to the model: one that would be sent, or one that was."""

    held: ShownState
    length: Length | None
    messages: Sequence[tuple[str, str]]
    """Role and text of the newest messages."""
    messages_before: int
    sent: Receipt | None = None
    """The receipt of a request that was sent."""
    is_new: bool = False
    """True if the request would show its memory anew."""
    is_compacted_first: bool = False
    """True if the conversation would be made shorter before."""


@router.get("/prompt", response_model=None)
def prompt_page(
    request: Request,
    caller: Caller,
    reference: AgentPath,
    c: str = "",
    message: str = "",
    at: str = "",
) -> Response:
    """Show the next request of the conversation with key `c`, or the one that answered its entry `at`."""
    if not caller.principal.may_configure:
        raise Forbidden("preview prompts")
    agent = caller.agents.get(reference)
    conversation = caller.conversations.find(agent.id, c) if c else None
    if (
        c and conversation is None
    ):  # a new one: the conversations of runs have keys that nobody can state
        check_key(c, "c")
    past = _past(caller, conversation, entry_number(at)) if at else None
    found = past or _next(caller, agent, c or None, message)
    budget = agent.config.session.memory_characters_max
    parts = _parts(found.held)
    memory = sum(part.characters for part in parts if not part.is_trusted)
    places = {memory_of(mount.name): mount.workspace_id for mount in agent.config.workspaces}
    return shown(
        request,
        "prompt.html",
        caller=caller,
        agent=agent,
        key=c,
        message=message,
        found=found,
        conversation=conversation,
        parts=parts,
        budget=budget,
        memory=memory,
        filled=min(100.0, round(100 * memory / budget, 1)) if budget else 0.0,
        asked=_asked(caller, conversation),
        at=at,
        conversations=caller.conversations.list(agent.id, limit=MESSAGES_MAX),
        places=places,
    )


def _next(
    caller: PrincipalServices, agent: AgentRecord, key: str | None, message: str
) -> ShownRequest:
    """Return the request that the next turn would send."""
    found = preview(caller.dispatcher, agent, conversation=key, message=message or None)
    messages = found.request.messages
    return ShownRequest(
        found.held,
        found.length,
        [(one.role, cut(one.text, MESSAGE_CHARACTERS_MAX)) for one in messages[-MESSAGES_MAX:]],
        max(0, len(messages) - MESSAGES_MAX),
        is_new=found.news is found.held.snapshot,
        is_compacted_first=bool(found.due),
    )


def _past(caller: PrincipalServices, conversation: Conversation | None, entry: int) -> ShownRequest:
    """Return the first request that showed an entry of a conversation.

    Raises: NotFound if there is no such request.
    """
    if conversation is None:
        raise NotFound("entry", str(entry), remedy="name the conversation as well")
    log = caller.conversations.prompt_log(conversation)
    sent = next(
        (one for one in log.receipts() if one.last >= entry and one.purpose == "turn"), None
    )
    if sent is None:
        raise NotFound("prompt with the entry", str(entry))
    transcript = caller.conversations.transcript(conversation)
    newest = transcript.page(MESSAGES_MAX, after=sent.last + 1, backwards=True)[::-1]
    messages = [
        (one.message.role, cut(one.message.text, MESSAGE_CHARACTERS_MAX))
        for one in newest
        if one.number >= sent.first and one.is_said
    ]
    before = max(0, newest[0].number - sent.first) if newest else 0
    return ShownRequest(log.as_shown(sent), sent.length, messages, before, sent)


def _asked(caller: PrincipalServices, conversation: Conversation | None) -> list[tuple[int, str]]:
    """Return number and text of the newest messages of the user, each of which had a prompt."""
    if conversation is None:
        return []
    entries = caller.conversations.transcript(conversation).page(
        ASKED_LOOKED_MAX, after=None, backwards=True
    )
    return [
        (one.number, shorten(one.message.text, ASKED_CHARACTERS_MAX, placeholder=" …"))
        for one in entries
        if one.event_id is not None and one.message.text.strip()
    ]


def _parts(held: ShownState) -> list[ShownPromptPart]:
    """Return the parts, then the notices of their changes, with their places in the bar of all."""
    parts, notices = held.snapshot.parts, held.deltas
    whole = sum(len(one.text) for one in (*parts, *notices)) or 1
    shown_parts: list[ShownPromptPart] = []
    begun = 0

    def add(one: PromptPart, entry: int | None) -> None:
        nonlocal begun
        shown_parts.append(
            ShownPromptPart(
                source=one.source,
                is_trusted=one.is_trusted,
                text=cut(one.text, PART_CHARACTERS_MAX),
                characters=len(one.text),
                revision=one.revision,
                lines_left_out=one.lines_left_out,
                entries_left_out=one.entries_left_out,
                unavailable=one.unavailable,
                entry=entry,
                x=round(100 * begun / whole, 2),
                width=round(100 * len(one.text) / whole, 2),
            )
        )
        begun += len(one.text)

    for part in parts:
        add(part, None)
    for notice in notices:
        add(PromptPart("change", False, notice.text), notice.entry)
    return shown_parts
