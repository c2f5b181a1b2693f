"""The blocks that an agent has of the reader: their content and limits, and the form that replaces one.

The blocks of the reader with this agent are shown beside those that every agent of the reader has. A block is
replaced only if it is still the version that the form was made for; otherwise both sides are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from harness.agents.record import AgentRecord
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.memory.blocks.block import (
    BLOCK_SCOPES,
    BLOCK_TYPES,
    LIMITS,
    Block,
    BlockConflict,
    BlockLimits,
    BlockPlace,
    BlockScope,
    BlockType,
    content_of,
    entry_starts,
)
from harness.memory.blocks.condition import BlockCondition
from harness.web.http.caller import Caller
from harness.web.pages.parts.form import Form, SentForm
from harness.web.pages.parts.rendering import led_to, shown
from harness.web.pages.parts.route import PageRoute
from harness.web.routes.talk.turns import AgentPath
from workspaces.errors import Failure, NotFound, OverLimit
from workspaces.history.diff import words_between

router = APIRouter(route_class=PageRoute, include_in_schema=False, prefix="/a/{id}/blocks/{type}")

BlockPath = Annotated[str, Path(alias="type", max_length=20)]


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """A block, or the place of one that was never written, with how full it is."""

    place: BlockPlace
    content: str
    limits: BlockLimits
    updated_at: str | None = None
    failure: str = ""

    @property
    def entries(self) -> int:
        return len(entry_starts(self.content))

    @property
    def filled(self) -> float:
        """The part of the limit that is used, as a percentage: of characters, or of entries if it is more."""
        parts = [len(self.content) / self.limits.characters]
        if self.limits.entries:
            parts.append(self.entries / self.limits.entries)
        return min(100.0, round(100 * max(parts), 1))


def blocks_of(caller: PrincipalServices, agent: AgentRecord) -> list[ShownBlock]:
    """Return the blocks of the reader with this agent, then those of the reader with every agent."""
    places = [
        caller.blocks.place_of(block_type, agent_id)
        for agent_id in (agent.id, None)
        for block_type in BLOCK_TYPES
    ]
    return [_shown(caller, place) for place in places]


def _shown(caller: PrincipalServices, place: BlockPlace) -> ShownBlock:
    limits = LIMITS[place.type]
    try:
        block = caller.blocks.find(place)
    except Failure as failure:  # one unreadable block does not hide the agent
        return ShownBlock(place, "", limits, failure=str(failure))
    if block is None:
        return ShownBlock(place, "", limits)
    return ShownBlock(place, block.content, limits, block.updated_at)


@router.get("", response_model=None)
def block_page(
    request: Request, caller: Caller, reference: AgentPath, block_type: BlockPath, scope: str = ""
) -> Response:
    """Show the form that replaces a block."""
    agent = caller.agents.get(reference)
    place = _place(caller, agent, block_type, scope)
    block = caller.blocks.find(place)
    return _page(request, caller, agent, place, block, block.content if block else "")


@router.post("", response_model=None)
def replace_block(
    request: Request, caller: Caller, reference: AgentPath, block_type: BlockPath, form: Form
) -> Response:
    """Replace or delete a block, if it is still the version that the form was made for."""
    agent = caller.agents.get(reference)
    place = _place(caller, agent, block_type, form.text("scope"))
    by, expected = caller.principal.author("api"), _expected(form)
    text = content_of(form.lines("text"))
    address = f"/a/{agent.id}/blocks/{place.type}"
    try:
        if form.text("do") == "delete":
            caller.blocks.delete(place, expected, by=by)
            return led_to(request, address, scope=place.scope, said="deleted")
        written = caller.blocks.put(place, text, expected, by=by)
    except BlockConflict as conflict:
        return _page(request, caller, agent, place, conflict.block, text, status=409)
    except OverLimit as failure:  # the text is kept: it only has to be shortened
        block = caller.blocks.find(place)
        return _page(request, caller, agent, place, block, text, status=413, failure=failure)
    said = "saved" if written.revision else "unchanged"
    return led_to(request, address, scope=place.scope, said=said, undo=written.revision)


def _place(
    caller: PrincipalServices, agent: AgentRecord, block_type: str, scope: str
) -> BlockPlace:
    known_type: BlockType | None = next((one for one in BLOCK_TYPES if one == block_type), None)
    known_scope: BlockScope | None = next(
        (one for one in BLOCK_SCOPES if one == (scope or "agent")), None
    )
    if known_type is None or known_scope is None:
        raise NotFound("block", block_type, remedy=f"the blocks are {' and '.join(BLOCK_TYPES)}")
    return caller.blocks.place_of(known_type, agent.id if known_scope == "agent" else None)


def _expected(form: SentForm) -> BlockCondition:
    """Return the condition that the block has the version of the form; none stands for no block."""
    stated = form.text("version") or None
    return BlockCondition(has_version=lambda version: version == stated)


def _page(
    request: Request,
    caller: PrincipalServices,
    agent: AgentRecord,
    place: BlockPlace,
    block: Block | None,
    text: str,
    *,
    status: int = 200,
    failure: OverLimit | None = None,
) -> Response:
    """Show the form. With a status of 409, show what is stored beside the text that was not saved."""
    theirs = block.content if block else ""
    return shown(
        request,
        "block-edit.html",
        caller=caller,
        status=status,
        agent=agent,
        place=place,
        block=block,
        text=text,
        limits=LIMITS[place.type],
        entries=len(entry_starts(text)),
        is_conflict=status == 409,
        spans=words_between(theirs, text) if status == 409 else (),
        failure=failure,
        undo_path=f"/w/{place.workspace_id}/revert",
    )
