"""The next prompt of an agent: exactly what the next turn would send, part by part."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from harness.context.part import PromptPart, memory_of
from harness.context.snapshot import ShownState
from harness.messages.event import check_key
from harness.turns.preview import preview
from harness.web.http.caller import Caller
from harness.web.pages.agent.transcript_view import cut
from harness.web.pages.parts.rendering import shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.talk.turns import AgentPath
from workspaces.errors import Forbidden

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/a/{id}")

PART_CHARACTERS_MAX = 20_000
"""Characters of one part that are shown."""

MESSAGES_MAX = 30
"""The newest messages of the conversation that are shown."""

MESSAGE_CHARACTERS_MAX = 2_000


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


@router.get("/prompt", response_model=None)
def prompt_page(
    request: Request,
    caller: Caller,
    reference: AgentPath,
    c: str = "",
    message: str = "",
) -> Response:
    if not caller.principal.may_configure:
        raise Forbidden("preview prompts")
    agent = caller.agents.get(reference)
    key = check_key(c, "c") if c else None
    found = preview(caller.dispatcher, agent, conversation=key, message=message or None)
    budget = agent.config.session.memory_characters_max
    parts = _parts(found.held)
    memory = sum(part.characters for part in parts if not part.is_trusted)
    places = {memory_of(mount.name): mount.workspace_id for mount in agent.config.workspaces}
    messages = found.request.messages
    return shown(
        request,
        "prompt.html",
        caller=caller,
        agent=agent,
        key=c,
        message=message,
        snapshot=found.held.snapshot,
        is_new=found.news is found.held.snapshot,
        parts=parts,
        length=found.length,
        budget=budget,
        memory=memory,
        filled=min(100.0, round(100 * memory / budget, 1)) if budget else 0.0,
        due=found.due,
        tools=[tool.name for tool in found.request.tools],
        messages=[
            (one.role, cut(one.text, MESSAGE_CHARACTERS_MAX)) for one in messages[-MESSAGES_MAX:]
        ],
        messages_before=max(0, len(messages) - MESSAGES_MAX),
        conversations=caller.conversations.list(agent.id, limit=MESSAGES_MAX),
        places=places,
    )


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
