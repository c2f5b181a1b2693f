"""Routes of archives: the conversations that the caller's memories cite."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi import Query as QueryOf
from pydantic import Field

from harness.memorize.local.local_conversations import shown_range
from harness.memorize.memorize_request import PER_PAGE, PER_PAGE_MAX, SnakeModel, Word
from harness.web.http.caller import Caller, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    Count,
    DeletionDocument,
    Query,
    answers,
    refusals,
)
from harness.web.routes.memory.memories import ArchiveDocument, PageMetaDocument

router = APIRouter(
    route_class=Route,
    prefix="/api/conversations",
    tags=["memorize"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)


class ArchivedMessageDocument(SnakeModel):
    """A message of an archived conversation."""

    position: int
    role: str
    type: str
    uuid: str | None
    timestamp: str | None
    text: str
    raw_event_index: int


class ArchivePage(SnakeModel):
    data: list[ArchiveDocument]
    meta: PageMetaDocument


class ArchiveMessagesDocument(SnakeModel):
    """An archived conversation, with some of its messages."""

    conversation: ArchiveDocument
    messages: list[ArchivedMessageDocument]
    total: int


class ArchiveQuery(Query):
    provider: Word | None = None
    q: Annotated[str, Field(max_length=1000)] | None = None
    """A part of the title or of the directory."""
    page: Count = 1
    per_page: Annotated[Count, Field(le=PER_PAGE_MAX)] = PER_PAGE


class MessagesQuery(Query):
    around: Count | None = None
    """Messages around this position; without it, the newest."""
    limit: Annotated[Count, Field(le=200)] = 50
    snapshot: Word | None = None
    """The conversation as a memory cites it, by the hash of the snapshot."""


@router.get("", summary="List archived conversations", responses=answers(ArchivePage))
def list_archives(caller: Caller, query: Annotated[ArchiveQuery, QueryOf()]) -> Json:
    """List the conversations that the caller's memories cite, those that changed last first."""
    wanted = (query.q or "").casefold()
    found = [
        one
        for one in caller.memorizer.archives.list()
        if query.provider in (None, one.about.provider)
        and wanted in f"{one.about.title}\n{one.about.project}".casefold()
    ]
    first = (query.page - 1) * query.per_page
    shown = found[first : first + query.per_page]
    meta = {"page": query.page, "per_page": query.per_page, "total": len(found)}
    return Json({"data": [one.as_json() for one in shown], "meta": meta})


ArchivePath = Annotated[
    str, Path(alias="id", description="The id of the archive, or of the conversation.")
]


@router.get(
    "/{id}",
    summary="Show an archived conversation",
    responses=answers(ArchiveMessagesDocument),
)
def show_archive(
    caller: Caller, reference: ArchivePath, query: Annotated[MessagesQuery, QueryOf()]
) -> Json:
    """Show a conversation with some of its messages. Their positions are those of groundings."""
    archives = caller.memorizer.archives
    archive = archives.get(reference)
    kept = archive.snapshots[-1] if query.snapshot is None else archive.find(query.snapshot)
    total = 0 if kept is None else kept.messages
    first, last = shown_range(total, query.around, query.limit)
    messages = islice(archives.messages(archive, query.snapshot), first, last)
    shown = [one.as_json() for one in messages]
    return Json({"conversation": archive.as_json(), "messages": shown, "total": total})


@router.delete(
    "/{id}",
    summary="Delete an archived conversation",
    responses={**answers(DeletionDocument, {"deleted": True}), **refusals(409)},
)
def delete_archive(caller: Caller, reference: ArchivePath) -> Json:
    """Delete a conversation. Memories that cite it stay, and have no proof from then on."""
    caller.memorizer.archives.delete(reference)
    return Json({"deleted": True})
