"""Prompts over HTTP: what the next turn of an agent would send, before anything is said."""

from __future__ import annotations

from typing import Annotated

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
    NUMBER,
    READING_JSON,
    TEXT,
    answers,
    list_of,
    object_of,
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


class Previewing(StrictModel):
    conversation_key: str | None = None
    message: Annotated[str, Field(max_length=CONTENT_CHARACTERS_MAX)] | None = None
    memory_policy: Annotated[MemoryPolicy | None, Field(alias="memory_policy")] = None
    """What that turn would ask for: another one than the last turn's means a new snapshot."""


PREVIEW = object_of(
    {
        "snapshot": object_of({"number": NUMBER, "at": TEXT, "reason": TEXT}),
        "isNew": {"type": "boolean"},
        "parts": list_of({"type": "object"}),
        "length": object_of(
            {"characters": NUMBER, "tools": NUMBER, "tokens": NUMBER, "snapshot": NUMBER}
        ),
        "compaction": object_of(
            {"kind": TEXT, "covers": NUMBER, "characters": NUMBER},
            optional=("covers", "characters"),
        ),
        "request": {"type": "object"},
    },
    optional=("compaction",),
)


@router.post(
    "/prompt-preview",
    summary="Show what the next turn would send",
    response_model=None,
    responses={**answers(PREVIEW), **refusals(*READING_JSON)},
    openapi_extra=takes(
        schema_of(Previewing), {"conversationKey": "planning", "message": "What is next?"}
    ),
)
def prompt_preview(caller: Caller, agent: Annotated[str, Path(alias="id")], fields: Fields) -> Json:
    """Part by part, with sizes and revisions, and the request itself. A key that was not used yet is
    previewed as a first turn. With `compaction` the turn would not send it as it is: it is longer than
    the agent's `maxContextLength`, and what was said up to the entry `covers` would be summarised first.
    Nothing is said by it and nothing stored. It shows whatever the agent mounts, so a key of the account
    is needed."""
    if not caller.principal.may_configure:
        raise Forbidden("preview prompts")
    stated = parse(Previewing, fields)
    key = None if stated.conversation_key is None else check_key(stated.conversation_key)
    record = caller.agents.get(agent)
    policy = stated.memory_policy.comparison_key if stated.memory_policy else ""
    question = preview(
        caller.dispatcher, record, conversation=key, message=stated.message, policy=policy
    )
    return Json(question.as_json())
