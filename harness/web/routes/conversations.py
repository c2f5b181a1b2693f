"""Conversations over HTTP: what was said, whose it is, and what is to become of it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import Field
from starlette.responses import Response

from harness.conversations.conversation import Conversation
from harness.conversations.export import entry_line
from harness.messages.event import (
    ITEMS_MAX,
    KEY_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    Approval,
    Event,
    check_key,
)
from harness.presentation.file_json import conversation_document, session_document
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.transcript import NUMBER_DIGITS
from harness.turns.explanation import explain
from harness.web.http.body import Fields, read_as
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import PageQuery, page_of, page_schema
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    DELETED,
    EVERYWHERE,
    NUMBER,
    READING_JSON,
    TEXT,
    TEXT_OR_NULL,
    Query,
    Schema,
    Switch,
    answers,
    list_of,
    object_of,
    refusals,
    schema_of,
    takes,
)
from harness.web.routes.turns import STATUS, STREAM, After, AgentPath, taken
from workspaces.errors import Forbidden, Refused
from workspaces.ids import new_id
from workspaces.validation import StrictModel, parse

router = APIRouter(
    route_class=Route,
    prefix="/v1",
    tags=["conversations"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

ANY: Schema = {"type": "object"}
_ABOUT: dict[str, Schema] = {
    "id": TEXT,
    "key": TEXT,
    "agentId": TEXT,
    "userId": TEXT,
    "createdAt": TEXT,
    "forkedFrom": TEXT,
    "updatedAt": TEXT,
    "entries": NUMBER,
}
SUMMARY = object_of(_ABOUT, optional=["forkedFrom"])
SESSION = object_of(
    {"first": NUMBER, "id": TEXT, "startedAt": TEXT, "windowFrom": NUMBER}, optional=["windowFrom"]
)
PENDING = object_of(
    {"callId": TEXT, "tool": TEXT, "input": ANY, "workspace": TEXT_OR_NULL, "waitsFor": TEXT}
)
WHOLE = object_of(
    {
        **_ABOUT,
        "sessions": list_of(SESSION),
        "waiting": NUMBER,
        "pending": list_of(PENDING),
        "turnId": TEXT,
    },
    optional=["forkedFrom", "turnId"],
)


class EntryPage(PageQuery):
    newest: Switch = False
    """The newest first."""


class Explaining(Query):
    turn: Annotated[str, Field(max_length=100)] | None = None
    """Only this turn, by its id or the beginning of it."""
    text: Switch = False
    """With the words themselves, as each step was shown them."""


class Fork(StrictModel):
    key: Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)]
    at: Annotated[int, Field(ge=1)] | None = None
    """The last entry that it takes along; else all."""


class Decision(StrictModel):
    call_id: Annotated[str, Field(min_length=1, max_length=200)]
    allowed: bool
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)] | None = None
    """Why not, for the model."""

    def as_item(self) -> Approval:
        return Approval(call_id=self.call_id, is_allowed=self.allowed, reason=self.reason)


class Deciding(StrictModel):
    event_id: Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)] | None = None
    approvals: Annotated[list[Decision], Field(min_length=1, max_length=ITEMS_MAX)]
    stream: bool = False


Decisions = Annotated[Deciding, Depends(read_as(partial(parse, Deciding)))]


async def _conversation(
    caller: Caller, conversation_id: Annotated[str, Path(alias="id")]
) -> Conversation:
    return await run_in_thread(caller.conversations.get, conversation_id)


FoundConversation = Annotated[Conversation, Depends(_conversation)]
"""The conversation that the path names, if it is the caller's."""


@router.get(
    "/agents/{id}/conversations",
    summary="List one's conversations with an agent",
    response_model=None,
    responses=answers(page_schema("conversations", SUMMARY)),
)
def list_conversations(
    caller: Caller, reference: AgentPath, query: Annotated[PageQuery, QueryOf()]
) -> Json:
    """The newest first."""
    agent, conversations = caller.agents.get(reference), caller.conversations
    found = conversations.list(agent.id, behind=query.cursor or "", limit=query.limit + 1)

    def shown(one: Conversation) -> Any:
        return conversation_document(one, conversations.transcript(one))

    page = page_of("conversations", found, query.limit, shown=shown, place=lambda one: one.place)
    return Json(page)


@router.get(
    "/conversations/{id}",
    summary="Show a conversation",
    response_model=None,
    responses=answers(WHOLE),
)
def show_conversation(caller: Caller, found: FoundConversation) -> Json:
    """With its sessions, how many events wait in it, the calls that wait, and the turn that runs."""
    transcript, inbox = caller.conversations.transcript(found), caller.dispatcher.event_queue
    line = inbox.state(found)
    return Json(
        {
            **conversation_document(found, transcript),
            "sessions": [session_document(one) for one in transcript.sessions()],
            "waiting": line.waiting,
            "pending": [call.as_json() for call in caller.dispatcher.pending(found)],
            **({"turnId": line.turn_id} if line.turn_id else {}),
        }
    )


@router.delete(
    "/conversations/{id}",
    summary="Delete a conversation",
    response_model=None,
    responses={**answers(DELETED, {"deleted": True}), **refusals(409)},
)
def delete_conversation(caller: Caller, found: FoundConversation) -> Json:
    """With everything that was said in it and what waits in it. Workspaces stay as they are."""
    caller.conversations.delete(found)
    return Json({"deleted": True})


@router.get(
    "/conversations/{id}/entries",
    summary="Read what was said",
    response_model=None,
    responses=answers(page_schema("entries", ANY)),
)
def list_entries(
    caller: Caller, found: FoundConversation, query: Annotated[EntryPage, QueryOf()]
) -> Json:
    """By their numbers, which have no gaps; a cursor is a number. Every message of the user and of the
    model, every tool call and its result, as they were stored."""
    after = _number(query.cursor) if query.cursor is not None else None
    transcript = caller.conversations.transcript(found)
    entries = transcript.page(query.limit + 1, after=after, backwards=query.newest)
    page = page_of(
        "entries", entries, query.limit, shown=entry_line, place=lambda one: str(one.number)
    )
    return Json(page)


@router.get(
    "/conversations/{id}/approvals",
    summary="List the calls that wait",
    response_model=None,
    responses=answers(object_of({"pending": list_of(PENDING)})),
)
def list_approvals(caller: Caller, found: FoundConversation) -> Json:
    """For somebody who allows them (`approval`), or for the client who makes them (`result`)."""
    return Json({"pending": [call.as_json() for call in caller.dispatcher.pending(found)]})


@router.post(
    "/conversations/{id}/approvals",
    summary="Allow calls, or do not",
    response_model=None,
    status_code=202,
    responses={
        **answers(STATUS, status=202, description="The turn goes on when no call waits any more."),
        **STREAM,
        **refusals(409, 429, *READING_JSON),
    },
    openapi_extra=takes(
        schema_of(Deciding), {"approvals": [{"callId": "toolu_01", "allowed": True}]}
    ),
)
async def decide(
    request: Request, caller: Caller, found: FoundConversation, stated: Decisions, after: After
) -> Response:
    """An event that answers, as at `turns`: with an `eventId` it can be sent again. What its turn comes
    to is its outcome."""
    agent = await run_in_thread(caller.agents.get, found.agent_id)
    event_id = new_id("evt") if stated.event_id is None else stated.event_id
    event = Event(event_id, found.key, tuple(one.as_item() for one in stated.approvals))
    return await taken(request, caller, agent, event, after if stated.stream else None)


@router.post(
    "/conversations/{id}/fork",
    summary="Fork a conversation",
    response_model=None,
    status_code=201,
    responses={
        **answers(SUMMARY, status=201, description="It was made."),
        **refusals(409, *READING_JSON),
    },
    openapi_extra=takes(schema_of(Fork), {"key": "another try", "at": 12}),
)
def fork_conversation(
    request: Request, caller: Caller, found: FoundConversation, fields: Fields
) -> Json:
    """A new one, under a key of its own, that begins with the entries of this one."""
    stated = parse(Fork, fields)
    made = caller.conversations.fork(found, check_key(stated.key, "key"), stated.at)
    told = conversation_document(made, caller.conversations.transcript(made))
    return Json(told, 201, {"Location": address_of(request, f"/v1/conversations/{made.id}")})


@router.post(
    "/conversations/{id}/reset",
    summary="Start a new session",
    response_model=None,
    responses={**answers(SESSION), **refusals(409)},
)
def reset_conversation(caller: Caller, found: FoundConversation) -> Json:
    """What was said stays and can be read; the agent is not shown it any more."""
    return Json(session_document(caller.conversations.reset(found)))


@router.post(
    "/conversations/{id}/cancel",
    summary="End the turn that runs or waits",
    response_model=None,
    responses={**answers(object_of({"cancelled": {"type": "boolean"}})), **refusals(409)},
)
async def cancel_turn(caller: Caller, found: FoundConversation) -> Json:
    """Whichever process runs it: its outcome will be `interrupted`. False when there is none. What waits
    in line behind it stays."""
    return Json({"cancelled": await caller.dispatcher.cancel(found)})


@router.get(
    "/conversations/{id}/receipts",
    summary="Show what the model was shown",
    response_model=None,
    responses=answers(object_of({"turns": list_of(ANY)})),
)
def list_receipts(
    caller: Caller, found: FoundConversation, query: Annotated[Explaining, QueryOf()]
) -> Json:
    """For each step of each turn the parts of the prompt with revision and size; and with which step a
    revision of memory came in. It shows whatever the agent mounts, so a key of the account is needed."""
    if not caller.principal.may_configure:
        raise Forbidden("see what a model was shown")
    told = explain(found, caller.agents, caller.conversations)
    return Json(told.as_json(query.turn, with_text=query.text))


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= NUMBER_DIGITS):
        raise Refused("cursor", cursor, "must be the number of an entry")
    return int(cursor)
