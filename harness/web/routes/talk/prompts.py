"""The route that previews the next request of an agent to the model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field

from harness.messages.event import CONTENT_CHARACTERS_MAX, check_key
from harness.messages.memory_policy import MemoryPolicy
from harness.turns.preview import preview
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    answers,
    left_out,
    refusals,
    schema_of,
    takes,
)
from workspaces.errors import Forbidden
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/v1/agents/{id}",
    tags=["turns"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class PreviewRequest(StrictModel):
    conversation_key: str | None = None
    message: Annotated[str, Field(max_length=CONTENT_CHARACTERS_MAX)] | None = None
    memory_policy: Annotated[MemoryPolicy | None, Field(alias="memory_policy")] = None
    """The memory policy of the turn: its keys replace those of the agent's. If the result differs from the
    last turn's, the turn makes a new snapshot."""


class PreviewSnapshotDocument(StrictModel):
    """The snapshot that a request would show."""

    number: int
    at: str
    reason: str


class PreviewLengthDocument(StrictModel):
    """The length of a request, and that of its parts."""

    characters: int
    tools: int
    tokens: int
    snapshot: int


class PreviewCompactionDocument(StrictModel):
    """The compaction that would come before the request."""

    kind: str
    covers: int = left_out()
    characters: int = left_out()


class PreviewDocument(StrictModel):
    """The request that a turn would send."""

    snapshot: PreviewSnapshotDocument
    is_new: bool
    parts: list[dict[str, Any]]
    length: PreviewLengthDocument
    compaction: PreviewCompactionDocument = left_out()
    digest: str
    request: dict[str, Any]


@router.post(
    "/prompt-preview",
    summary="Show what the next turn would send",
    responses={**answers(PreviewDocument), **refusals(*READING_JSON)},
    openapi_extra=takes(
        schema_of(PreviewRequest), {"conversationKey": "planning", "message": "What is next?"}
    ),
)
def prompt_preview(caller: Caller, agent: Annotated[str, Path(alias="id")], fields: Fields) -> Json:
    """Show the parts of the prompt with sizes and revisions, and the request itself.

    A new conversation key is previewed as a first turn. With `compaction`, the turn would not send this
    request: it is longer than the agent's `maxContextLength`. The turn would first summarise the entries up
    to `covers`. The preview sends and stores nothing. It shows all mounts of the agent, so it needs an
    account key.
    """
    if not caller.principal.may_configure:
        raise Forbidden("preview prompts")
    body = parse(PreviewRequest, fields)
    key = None if body.conversation_key is None else check_key(body.conversation_key)
    record = caller.agents.get(agent)
    request = preview(
        caller.dispatcher,
        record,
        conversation=key,
        message=body.message,
        policy=body.memory_policy,
    )
    return Json(request.as_json())
