"""Routes of conversations: list, read, approve, fork, reset, cancel and delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import Field
from starlette.responses import Response

from harness.conversations.conversation import Conversation
from harness.conversations.export import entry_line
from harness.conversations.queue_state import number_waiting
from harness.messages.event import (
    ITEMS_MAX,
    KEY_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
    Approval,
    Event,
    check_event_id,
    check_key,
)
from harness.presentation.file_json import conversation_document, session_document
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.transcript import NUMBER_DIGITS
from harness.turns.explanation import explain
from harness.web.http.body import Fields, read_as
from harness.web.http.caller import Caller, address_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.pagination import PageQuery, page_model, page_of, whole
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    DeletionDocument,
    Query,
    Switch,
    answers,
    left_out,
    refusals,
    schema_of,
    takes,
)
from harness.web.routes.talk.turns import STREAM, After, AgentPath, EventDocument, accept_event
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


class ConversationDocument(StrictModel):
    """A conversation."""

    id: str
    key: str
    agent_id: str
    user_id: str
    created_at: str
    forked_from: str = left_out()
    updated_at: str
    entries: int


class SessionDocument(StrictModel):
    """A session of a conversation."""

    first: int
    id: str
    started_at: str
    window_from: int = left_out()


class PendingDocument(StrictModel):
    """A call that waits for an answer."""

    call_id: str
    tool: str
    input: dict[str, Any]
    workspace: str | None
    waits_for: str


class ConversationStateDocument(ConversationDocument):
    """A conversation, with its sessions and its queue."""

    sessions: list[SessionDocument]
    waiting: int
    pending: list[PendingDocument]
    turn_id: str = left_out()


class CancellationDocument(StrictModel):
    cancelled: bool


class EntryPage(PageQuery):
    newest: Switch = False
    """List the newest entry first."""


class ReceiptQuery(Query):
    turn: Annotated[str, Field(max_length=100)] | None = None
    """Only this turn, by its id or the start of its id."""
    text: Switch = False
    """Include the text that the model saw at each step."""


class Fork(StrictModel):
    key: Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)]
    at: Annotated[int, Field(ge=1)] | None = None
    """The last entry to copy; default: all entries."""


class ApprovalOrDenial(StrictModel):
    call_id: Annotated[str, Field(min_length=1, max_length=200)]
    allowed: bool
    reason: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)] | None = None
    """The reason of a denial, for the model."""

    def as_item(self) -> Approval:
        return Approval(call_id=self.call_id, is_allowed=self.allowed, reason=self.reason)


class ApprovalRequest(StrictModel):
    event_id: Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)] | None = None
    approvals: Annotated[list[ApprovalOrDenial], Field(min_length=1, max_length=ITEMS_MAX)]
    stream: bool = False


Approvals = Annotated[ApprovalRequest, Depends(read_as(partial(parse, ApprovalRequest)))]


async def _conversation(
    caller: Caller, conversation_id: Annotated[str, Path(alias="id")]
) -> Conversation:
    return await run_in_thread(caller.conversations.get, conversation_id)


PathConversation = Annotated[Conversation, Depends(_conversation)]
"""The conversation that the path names, if it is the caller's."""


@router.get(
    "/agents/{id}/conversations",
    summary="List your conversations with an agent",
    responses=answers(page_model("conversations", ConversationDocument)),
)
def list_conversations(
    caller: Caller, reference: AgentPath, query: Annotated[PageQuery, QueryOf()]
) -> Json:
    """List the caller's conversations, newest first."""
    agent, conversations = caller.agents.get(reference), caller.conversations
    rows = conversations.list(agent.id, behind=query.cursor or "", limit=query.limit + 1)

    def shown(one: Conversation) -> Any:
        return conversation_document(one, conversations.transcript(one))

    page = page_of("conversations", rows, query.limit, shown=shown, place=lambda one: one.place)
    return Json(page)


@router.get(
    "/conversations/{id}",
    summary="Show a conversation",
    responses=answers(ConversationStateDocument),
)
def show_conversation(caller: Caller, conversation: PathConversation) -> Json:
    """Show a conversation with its sessions, queued events, pending calls and running turn."""
    transcript = caller.conversations.transcript(conversation)
    head, tail = caller.conversations.queue(conversation).ends()
    return Json(
        {
            **conversation_document(conversation, transcript),
            "sessions": [session_document(one) for one in transcript.sessions()],
            "waiting": number_waiting(head, tail),
            "pending": [call.as_json() for call in caller.conversations.pending(conversation)],
            **({"turnId": head.turn_id} if head.turn_id else {}),
        }
    )


@router.delete(
    "/conversations/{id}",
    summary="Delete a conversation",
    responses={**answers(DeletionDocument, {"deleted": True}), **refusals(409)},
)
def delete_conversation(caller: Caller, conversation: PathConversation) -> Json:
    """Delete a conversation with its entries and its queue. Workspaces do not change."""
    caller.conversations.delete(conversation)
    return Json({"deleted": True})


@router.get(
    "/conversations/{id}/entries",
    summary="List the entries",
    responses=answers(page_model("entries", dict[str, Any])),
)
def list_entries(
    caller: Caller, conversation: PathConversation, query: Annotated[EntryPage, QueryOf()]
) -> Json:
    """List the stored entries: messages of the user and the model, tool calls and their results.

    Entries are in the order of their numbers, which have no gaps. A cursor is a number.
    """
    after = _number(query.cursor) if query.cursor is not None else None
    transcript = caller.conversations.transcript(conversation)
    entries = transcript.page(query.limit + 1, after=after, backwards=query.newest)
    page = page_of(
        "entries", entries, query.limit, shown=entry_line, place=lambda one: str(one.number)
    )
    return Json(page)


@router.get(
    "/conversations/{id}/approvals",
    summary="List the pending calls",
    responses=answers(page_model("approvals", PendingDocument)),
)
def list_approvals(caller: Caller, conversation: PathConversation) -> Json:
    """List the calls that wait for an approval (`approval`) or for a result from the client (`result`)."""
    pending = caller.conversations.pending(conversation)
    return Json(whole("approvals", (call.as_json() for call in pending)))


@router.post(
    "/conversations/{id}/approvals",
    summary="Approve or deny pending calls",
    status_code=202,
    responses={
        **answers(
            EventDocument, status=202, description="The turn continues when no call is pending."
        ),
        **STREAM,
        **refusals(409, 429, *READING_JSON),
    },
    openapi_extra=takes(
        schema_of(ApprovalRequest), {"approvals": [{"callId": "toolu_01", "allowed": True}]}
    ),
)
async def decide(
    request: Request, caller: Caller, conversation: PathConversation, body: Approvals, after: After
) -> Response:
    """Send an event that answers pending calls, as at `turns`.

    With an `eventId`, the request can be repeated. The outcome of the event is the outcome of its turn.
    """
    agent = await run_in_thread(caller.agents.get, conversation.agent_id)
    event_id = new_id("evt") if body.event_id is None else body.event_id
    approvals = tuple(one.as_item() for one in body.approvals)
    check_event_id(event_id)
    event = Event(event_id, conversation.key, approvals, has_reserved_key=True)
    return await accept_event(request, caller, agent, event, after if body.stream else None)


@router.post(
    "/conversations/{id}/fork",
    summary="Fork a conversation",
    status_code=201,
    responses={
        **answers(ConversationDocument, status=201, description="The conversation was created."),
        **refusals(409, *READING_JSON),
    },
    openapi_extra=takes(schema_of(Fork), {"key": "another try", "at": 12}),
)
def fork_conversation(
    request: Request, caller: Caller, conversation: PathConversation, fields: Fields
) -> Json:
    """Create a conversation with a new key and a copy of the entries."""
    fork = parse(Fork, fields)
    made = caller.conversations.fork(conversation, check_key(fork.key, "key"), fork.at)
    document = conversation_document(made, caller.conversations.transcript(made))
    return Json(document, 201, {"Location": address_of(request, f"/v1/conversations/{made.id}")})


@router.post(
    "/conversations/{id}/reset",
    summary="Start a new session",
    responses={**answers(SessionDocument), **refusals(409)},
)
def reset_conversation(caller: Caller, conversation: PathConversation) -> Json:
    """Start a new session. Old entries can still be read, but the agent no longer sees them."""
    return Json(session_document(caller.conversations.reset(conversation)))


@router.post(
    "/conversations/{id}/cancel",
    summary="Cancel the running or waiting turn",
    responses={**answers(CancellationDocument), **refusals(409)},
)
async def cancel_turn(caller: Caller, conversation: PathConversation) -> Json:
    """Cancel the turn, in whichever process it runs. Its outcome will be `interrupted`.

    `cancelled` is false if there is no turn. Later events in the queue stay there.
    """
    return Json({"cancelled": await caller.dispatcher.cancel(conversation)})


@router.get(
    "/conversations/{id}/receipts",
    summary="Show exactly what the model saw",
    responses=answers(page_model("receipts", dict[str, Any])),
)
def list_receipts(
    caller: Caller, conversation: PathConversation, query: Annotated[ReceiptQuery, QueryOf()]
) -> Json:
    """Show the parts of the prompt for each step of each turn, with revision and size.

    The response also names the step at which the model first saw a revision of memory. It shows all mounts
    of the agent, so it needs an account key.
    """
    if not caller.principal.may_configure:
        raise Forbidden("see prompts")
    explanation = explain(conversation, caller.agents, caller.conversations)
    turns = explanation.as_json(query.turn, with_text=query.text)["turns"]
    return Json(whole("receipts", turns))


def _number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= NUMBER_DIGITS):
        raise Refused("cursor", cursor, "must be the number of an entry")
    return int(cursor)
