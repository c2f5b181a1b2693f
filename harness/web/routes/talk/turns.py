"""Routes of turns: accept an event durably, show its status, and stream its progress."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from harness.agents.record import AgentRecord
from harness.bootstrap.composition import Application
from harness.bootstrap.services.principal_services import PrincipalServices
from harness.conversations.event_status import EventState, EventStatus
from harness.conversations.queued_event import QueuedEvent
from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool, client_tools_of
from harness.messages.event import (
    ITEMS_MAX,
    KEY_CHARACTERS_MAX,
    SHARED_KEY,
    Answer,
    Approval,
    Event,
    OnBusy,
    SystemSaid,
    ToolAnswer,
    UserSaid,
    check_event_id,
    items_of,
)
from harness.messages.memory_policy import MemoryPolicy
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.approval import nothing_waits
from harness.turns.event_stream import wait_for_status
from harness.turns.worker_pool import WorkerPool
from harness.web.http.body import JsonObject, read_as
from harness.web.http.caller import Caller, address_of, application_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    READING_JSON,
    Query,
    Responses,
    Schema,
    answers,
    left_out,
    refusals,
    schema_of,
    takes,
)
from harness.web.http.sse import EVENT, EVENT_STREAM, resumed_from, streamed
from workspaces.errors import Refused
from workspaces.validation import StrictModel, parse

WAIT_S_MAX = 60.0
"""Longest wait for an answer in one request, in seconds. Many proxies close the request soon after."""

router = APIRouter(
    route_class=Route,
    prefix="/v1/agents/{id}",
    tags=["turns"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

_Name = Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)]


class TurnRequest(StrictModel):
    event_id: _Name
    conversation_key: _Name | None = None
    """Absent: the conversation that the agent's runs share, for the account's owner."""
    events: list[Any]
    system: str | None = None
    memory_policy: Annotated[MemoryPolicy | None, Field(alias="memory_policy")] = None
    tools: list[Any] = Field(default=[])
    on_busy: OnBusy | None = None
    stream: bool = False

    def as_event(self) -> Event:
        items = items_of(self.events)
        is_shared = self.conversation_key is None
        return Event(
            check_event_id(self.event_id),
            SHARED_KEY if self.conversation_key is None else self.conversation_key,
            items,
            # an answer names the conversation in which the call waits, and that may be a run's
            has_reserved_key=is_shared or any(isinstance(one, Answer) for one in items),
            system=self.system,
            memory_policy=self.memory_policy,
            tools=client_tools_of(self.tools),
            on_busy=self.on_busy,
        )


def _parse_turn(fields: JsonObject) -> tuple[Event, bool]:
    """Return the event of a body, and True if the caller asks for a stream."""
    body = parse(TurnRequest, fields)
    return body.as_event(), body.stream


ParsedTurn = Annotated[tuple[Event, bool], Depends(read_as(_parse_turn))]


def _turn_schema() -> Schema:
    """Return the schema of a turn. The core parses its lists, with better errors than a union type."""
    schema = schema_of(TurnRequest)
    items: Schema = {"anyOf": [_item(one) for one in (UserSaid, SystemSaid, Approval, ToolAnswer)]}
    events = {"type": "array", "items": items, "minItems": 1, "maxItems": ITEMS_MAX}
    tools = {"type": "array", "items": schema_of(ClientTool), "maxItems": CLIENT_TOOLS_MAX}
    schema["properties"] |= {"events": events, "tools": tools}
    return schema


def _item(shape: type[StrictModel]) -> Schema:
    """Return the schema of an item. `type` is required: it distinguishes the kinds of items."""
    schema = schema_of(shape)
    return {**schema, "required": ["type", *schema.get("required", [])]}


EXAMPLE: JsonObject = {
    "eventId": "message-4711",
    "conversationKey": "planning",
    "events": [{"type": "user", "content": "What is next?"}],
}


class RemarkDocument(StrictModel):
    """A remark on the context of a turn."""

    kind: str
    detail: str


class EventDocument(StrictModel):
    """The status of an event, with its outcome once it has one."""

    event_id: str
    status: EventState
    conversation_id: str
    status_url: str = left_out()
    turn_id: str = left_out()
    ahead: int = left_out()
    outcome: str = left_out()
    reply: str = left_out()
    usage: dict[str, Any] = left_out()
    revisions: list[dict[str, Any]] = left_out()
    durable: dict[str, Any] = left_out()
    unavailable: list[str] = left_out()
    left_out_mounts: Annotated[list[str], Field(alias="leftOut")] = left_out()
    context: list[RemarkDocument] = left_out()
    pending: list[dict[str, Any]] = left_out()
    error: dict[str, Any] = left_out()


STREAM: Responses = {
    200: {
        "model": EventDocument,
        "description": "Server-sent events, if the request asks for a stream; else the status of the event.",
        "content": {EVENT_STREAM: {"schema": EVENT}},
    }
}

AgentPath = Annotated[str, Path(alias="id", description="The id, or the name.")]
EventPath = Annotated[str, Path(alias="eventId", min_length=1)]
After = Annotated[int, Depends(resumed_from)]


def _seconds(value: object) -> object:
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError as error:
            raise ValueError("must be a number of seconds") from error
    return value


class WaitQuery(Query):
    wait: Annotated[float, Field(ge=0, le=WAIT_S_MAX), BeforeValidator(_seconds)] = 0
    """Longest wait, in seconds, for the event to be finished."""


@router.post(
    "/turns",
    summary="Send a message to an agent",
    status_code=202,
    responses={
        **answers(
            EventDocument,
            status=202,
            description="The event is stored and will be answered, even if this server stops.",
        ),
        **STREAM,
        **refusals(409, 429, *READING_JSON),
    },
    openapi_extra=takes(_turn_schema(), EXAMPLE),
)
async def take_turn(
    request: Request, caller: Caller, reference: AgentPath, turn: ParsedTurn, after: After
) -> Response:
    """Accept an event: store it durably, to be answered once.

    The same `eventId` with the same body always leads to the same answer. With another body it is refused.
    `stream` returns server-sent events. After a disconnect, continue them with `Last-Event-ID`.
    """
    event, is_followed = turn
    if event.conversation_key == SHARED_KEY:
        check_shared(caller)
    agent = await run_in_thread(caller.agents.get, reference)
    return await accept_event(request, caller, agent, event, after if is_followed else None)


def check_shared(caller: PrincipalServices) -> None:
    """Raise Refused unless the caller is the account's owner, to whom the shared conversation belongs."""
    if caller.principal.user_id != caller.principal.owner.id:
        raise Refused("conversationKey", None, "is required: only the owner shares a conversation")


async def accept_event(
    request: Request, caller: PrincipalServices, agent: AgentRecord, event: Event, after: int | None
) -> Response:
    """Accept an event and let the worker pool answer it.

    With `after`, return a stream that begins after this entry, otherwise the status of the event.
    """
    await begin_event(request, caller, agent, event)
    if after is not None:
        return streamed(request, caller.dispatcher, agent.id, event.id, after)
    status = await run_in_thread(caller.dispatcher.status, agent.id, event.id)
    return _status_response(request, status, agent)


async def begin_event(
    request: Request, caller: PrincipalServices, agent: AgentRecord, event: Event
) -> None:
    """Accept an event durably, and let the worker pool answer it."""
    queued = await _enqueue(request, caller, agent, event)
    worker_pool: WorkerPool = request.app.state.worker_pool
    await worker_pool.take(caller.dispatcher, queued)


@router.get(
    "/events/{eventId:path}/stream",
    summary="Stream an event",
    responses={
        200: {"description": "Server-sent events.", "content": {EVENT_STREAM: {"schema": EVENT}}}
    },
)
async def follow_event(
    request: Request, caller: Caller, reference: AgentPath, event_id: EventPath, after: After
) -> Response:
    """Stream the entries of the turn after `Last-Event-ID`, its progress, and its outcome at the end."""
    agent = await run_in_thread(caller.agents.get, reference)
    await run_in_thread(caller.dispatcher.status, agent.id, event_id)
    return streamed(request, caller.dispatcher, agent.id, event_id, after)


@router.get(
    "/events/{eventId:path}",
    summary="Show the status of an event",
    responses=answers(EventDocument),
)
async def show_event(
    request: Request,
    caller: Caller,
    reference: AgentPath,
    event_id: EventPath,
    query: Annotated[WaitQuery, QueryOf()],
) -> Json:
    """Show the status of an event. It is kept for a day.

    `refused` means that the event was rejected before it had any effect. It may be sent again.
    """
    agent = await run_in_thread(caller.agents.get, reference)
    status = await wait_for_status(
        caller.dispatcher,
        agent.id,
        event_id,
        wait_s=query.wait,
        shutdown=request.app.state.shutdown,
    )
    return Json(status.as_json())


async def _enqueue(
    request: Request, caller: PrincipalServices, agent: AgentRecord, event: Event
) -> QueuedEvent:
    """Put an event into the queue. A new event must be within the limits of the account."""
    dispatcher = caller.dispatcher
    queue = dispatcher.event_queue
    known = await run_in_thread(queue.claims.find, queue.claim_key(agent.id, event.id))
    # a new event, or one that was refused before: check it; an accepted one is answered anyway
    if known is None or known.refusal is not None:
        await run_in_thread(_check, application_of(request), caller, agent, event)
    return await dispatcher.enqueue(agent, event)


def _check(
    application: Application, caller: PrincipalServices, agent: AgentRecord, event: Event
) -> None:
    """Refuse an event at once if its turn would be refused later.

    Raises:
        Exhausted: a limit of the account is reached.
        NotFound: the event answers a call that is not pending.
    """
    conversations = caller.conversations
    conversation = conversations.find(agent.id, event.conversation_key)
    runs = conversation is not None and conversations.queue(conversation).head().turn_id is not None
    application.limiter.check(caller.principal.account_id, waits=runs)
    # a running turn may still make the call that the event answers
    if not event.is_answer or conversation is None or runs:
        return
    pending = {call.id for call in caller.conversations.pending(conversation)}
    for answer in event.answers:
        if answer.call_id not in pending:
            raise nothing_waits(answer.call_id)


def _status_response(request: Request, status: EventStatus, agent: AgentRecord) -> Json:
    path = f"/v1/agents/{agent.id}/events/{quote(status.event_id, safe='')}"
    url = address_of(request, path)
    document = {**status.as_json(), "statusUrl": url}
    return Json(document, 200 if status.is_at_rest else 202, {"Location": url})
