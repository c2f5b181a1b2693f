"""Routes of memories: memorize one, and list, show and delete those that there are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi import Query as QueryOf
from pydantic import Field

from harness.memorize.memorize_request import (
    PER_PAGE,
    PER_PAGE_MAX,
    MemorizeRequest,
    MemorySort,
    ResourceListRequest,
    SnakeModel,
    Word,
)
from harness.memorize.sent_conversation import SentConversation
from harness.web.http.body import Fields
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.local_reader import readable_conversations
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    Count,
    DeletionDocument,
    Query,
    answers,
    refusals,
    schema_of,
    takes,
)
from workspaces.errors import Refused
from workspaces.storage.records import JsonObject
from workspaces.validation import parse

router = APIRouter(
    route_class=Route,
    prefix="/api/memories",
    tags=["memorize"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class ArchiveSnapshotDocument(SnakeModel):
    """A conversation as it was archived once."""

    hash: str
    messages: int
    bytes: int
    at: str


class ArchiveDocument(SnakeModel):
    """A conversation that memories cite."""

    id: str
    conversation_id: str
    provider: str
    title: str
    project: str | None
    parent: str | None
    messages: int
    snapshot: str
    snapshots: list[ArchiveSnapshotDocument]
    created_at: str
    updated_at: str


class MemorizedDocument(SnakeModel):
    """A fact with its proof."""

    id: str
    memory_key: str | None
    content: str
    tags: list[str]
    confidence: float | None
    metadata: dict[str, Any]
    groundings: list[dict[str, Any]]
    agent_id: str | None
    conversation_id: str
    provider: str
    project: str | None
    workspace: str
    source: str
    created_at: str
    updated_at: str


class MemorizeResultDocument(SnakeModel):
    """What became of a fact that was sent."""

    status: Literal["created", "updated", "unchanged"]
    memory: MemorizedDocument
    conversation: ArchiveDocument
    warnings: list[str]


class PageMetaDocument(SnakeModel):
    """The place of a page in its list."""

    page: int
    per_page: int
    total: int


class MemorizedPage(SnakeModel):
    data: list[MemorizedDocument]
    meta: PageMetaDocument


EXAMPLE: JsonObject = {
    "conversation": {
        "id": "019b0000-0000-7000-8000-00000000aaaa",
        "provider": "codex",
        "messages": [{"role": "user", "text": "The staging server is called heron."}],
    },
    "memory": {
        "content": "The staging server is called heron.",
        "tags": ["deploy"],
        "groundings": [{"quote": "staging server is called heron"}],
    },
    "source": "mcp",
}


class WithConversation(SnakeModel):
    """A memory with the conversation that it comes from."""

    conversation: dict[str, Any] | None = None
    memory: dict[str, Any]
    source: Annotated[str, Field(max_length=100)] | None = None
    """The program that sends it, for the history."""


class MemoryQuery(Query):
    q: Annotated[str, Field(max_length=1000)] | None = None
    """Words that all stand in the memory, its key or its tags."""
    tags: Annotated[str, Field(max_length=1000)] | None = None
    """Only memories with all of these tags, separated by commas."""
    provider: Word | None = None
    project: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    conversation_id: Word | None = None
    updated_after: Word | None = None
    """A date, or a date with time."""
    updated_before: Word | None = None
    sort: MemorySort = "-updated_at"
    page: Count = 1
    per_page: Annotated[Count, Field(le=PER_PAGE_MAX)] = PER_PAGE


@router.post(
    "/memorize",
    summary="Memorize a fact with its proof",
    responses={
        **answers(
            MemorizeResultDocument, description="The memory was there: it is updated, or unchanged."
        ),
        **answers(MemorizeResultDocument, status=201, description="The memory is new."),
        **refusals(409, 422, *READING_JSON),
    },
    openapi_extra=takes(
        {"anyOf": [schema_of(MemorizeRequest), schema_of(WithConversation)]}, EXAMPLE
    ),
)
def memorize(request: Request, caller: Caller, fields: Fields) -> Json:
    """Store a fact, tied to the moments of a conversation that prove it.

    The body is the memory itself, which cites a conversation of this server; or `conversation`, `memory` and
    `source`, where the conversation comes with the call. The same memory can be sent again.
    """
    memorizer, principal = caller.memorizer, caller.principal
    author, sent = principal.author("memorize"), None
    if "memory" in fields:
        whole = parse(WithConversation, fields)
        memory: dict[str, Any] = dict(whole.memory)
        if whole.source:
            author = author.saying("Client", whole.source)
        if whole.conversation is not None:
            shape = parse(SentConversation, whole.conversation, within="conversation")
            if memory.setdefault("conversation_id", shape.id) != shape.id:
                rule = f"must be {shape.id}, the id of the conversation that comes with it"
                raise Refused("conversation_id", memory["conversation_id"], rule)
            sent = shape.whole(caller.clock)
    else:
        memory = fields
    result = memorizer.memorize(
        parse(MemorizeRequest, memory),
        by=author,
        local=readable_conversations(request, principal),
        sent=sent,
    )
    return Json(result.as_json(), 201 if result.status == "created" else 200)


@router.get("", summary="List memories", responses=answers(MemorizedPage))
def list_memories(caller: Caller, query: Annotated[MemoryQuery, QueryOf()]) -> Json:
    """List the facts that memorize wrote, those that changed last first."""
    stated = query.model_dump(exclude_none=True)
    if query.tags is not None:
        stated["tags"] = [tag for tag in query.tags.split(",") if tag.strip()]
    return Json(caller.memorizer.memories.list(parse(ResourceListRequest, stated)).as_json())


MemoryPath = Annotated[str, Path(alias="id", description="The id of the memory.")]


@router.get("/{id}", summary="Show a memory", responses=answers(MemorizedDocument))
def show_memory(caller: Caller, memory: MemoryPath) -> Json:
    return Json(caller.memorizer.memories.get(memory).as_json())


@router.delete(
    "/{id}",
    summary="Forget a memory",
    responses={**answers(DeletionDocument, {"deleted": True}), **refusals(409)},
)
def delete_memory(caller: Caller, memory: MemoryPath) -> Json:
    """Delete a memory. Its last version stays in the history, and its conversation in the archive."""
    caller.memorizer.memories.delete(memory, caller.principal.author("api"))
    return Json({"deleted": True})
