"""Turns over HTTP: an event comes in, durably, and what comes of it is asked for or followed."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request
from fastapi import Query as QueryOf
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from harness.agents.agent import AgentRecord
from harness.bootstrap.composition import Application, PrincipalServices
from harness.conversations.event_queue import QueuedEvent
from harness.conversations.event_status import EventStatus
from harness.messages.client_tool import CLIENT_TOOLS_MAX, ClientTool, client_tools_of
from harness.messages.event import (
    ITEMS_MAX,
    KEY_CHARACTERS_MAX,
    Approval,
    Event,
    OnBusy,
    SystemSaid,
    ToolAnswer,
    UserSaid,
    items_of,
)
from harness.messages.memory_policy import MemoryPolicy
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.approval import nothing_waits
from harness.turns.event_stream import settled
from harness.turns.worker_pool import WorkerPool
from harness.web.http.body import JsonObject, read_as
from harness.web.http.caller import Caller, address_of, application_of, documented_bearer
from harness.web.http.errors import Json
from harness.web.http.route import Route
from harness.web.http.route_docs import (
    EVERYWHERE,
    NUMBER,
    READING_JSON,
    TEXT,
    Query,
    Responses,
    Schema,
    answers,
    list_of,
    object_of,
    refusals,
    schema_of,
    takes,
)
from harness.web.http.sse import EVENT, EVENT_STREAM, resumed_from, streamed
from workspaces.validation import StrictModel, parse

WAIT_S_MAX = 60.0
"""For an answer to be waited for in one request; many proxies give up soon after."""

router = APIRouter(
    route_class=Route,
    prefix="/v1/agents/{id}",
    tags=["turns"],
    dependencies=[documented_bearer],
    responses=refusals(*EVERYWHERE),
)

_Name = Annotated[str, Field(min_length=1, max_length=KEY_CHARACTERS_MAX)]


class Turning(StrictModel):
    event_id: _Name
    conversation_key: _Name
    events: list[Any]
    system: str | None = None
    memory_policy: Annotated[MemoryPolicy | None, Field(alias="memory_policy")] = None
    tools: list[Any] = Field(default=[])
    on_busy: OnBusy | None = None
    stream: bool = False

    def as_event(self) -> Event:
        return Event(
            self.event_id,
            self.conversation_key,
            items_of(self.events),
            self.system,
            self.memory_policy,
            client_tools_of(self.tools),
            self.on_busy,
        )


def _stated(fields: JsonObject) -> tuple[Event, bool]:
    """Return the event that a body states, and whether it is to be followed."""
    stated = parse(Turning, fields)
    return stated.as_event(), stated.stream


Stated = Annotated[tuple[Event, bool], Depends(read_as(_stated))]


def _turning() -> Schema:
    """The lists are parsed by the core, which says better than a union what is wrong in them."""
    schema = schema_of(Turning)
    items: Schema = {"anyOf": [_item(one) for one in (UserSaid, SystemSaid, Approval, ToolAnswer)]}
    events = {**list_of(items), "minItems": 1, "maxItems": ITEMS_MAX}
    tools = {**list_of(schema_of(ClientTool)), "maxItems": CLIENT_TOOLS_MAX}
    schema["properties"] |= {"events": events, "tools": tools}
    return schema


def _item(shape: type[StrictModel]) -> Schema:
    """Its type is what tells it from the others."""
    schema = schema_of(shape)
    return {**schema, "required": ["type", *schema.get("required", [])]}


EXAMPLE: JsonObject = {
    "eventId": "message-4711",
    "conversationKey": "planning",
    "events": [{"type": "user", "content": "What is next?"}],
}

ANY: Schema = {"type": "object"}
STATUS = object_of(
    {
        "eventId": TEXT,
        "status": {"enum": ["queued", "running", "waiting", "done", "failed", "refused"]},
        "conversationId": TEXT,
        "statusUrl": TEXT,
        "turnId": TEXT,
        "ahead": NUMBER,
        "outcome": TEXT,
        "reply": TEXT,
        "usage": ANY,
        "revisions": list_of(ANY),
        "durable": ANY,
        "unavailable": list_of(TEXT),
        "leftOut": list_of(TEXT),
        "context": list_of(object_of({"kind": TEXT, "detail": TEXT})),
        "pending": list_of(ANY),
        "error": ANY,
    },
    optional=[
        "statusUrl",
        "turnId",
        "ahead",
        "outcome",
        "reply",
        "usage",
        "revisions",
        "durable",
        "unavailable",
        "leftOut",
        "context",
        "pending",
        "error",
    ],
)

STREAM: Responses = {
    200: {
        "description": "Server-sent events, when a stream was asked for; or what came of it before.",
        "content": {EVENT_STREAM: {"schema": EVENT}, "application/json": {"schema": STATUS}},
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


class Patient(Query):
    wait: Annotated[float, Field(ge=0, le=WAIT_S_MAX), BeforeValidator(_seconds)] = 0
    """So many seconds at most, for it to be settled."""


@router.post(
    "/turns",
    summary="Say something to an agent",
    response_model=None,
    status_code=202,
    responses={
        **answers(STATUS, status=202, description="It will be answered, whatever happens here."),
        **STREAM,
        **refusals(409, 429, *READING_JSON),
    },
    openapi_extra=takes(_turning(), EXAMPLE),
)
async def take_turn(
    request: Request, caller: Caller, reference: AgentPath, stated: Stated, after: After
) -> Response:
    """Accepted is: kept durably, to be answered once. The same `eventId` with the same body leads to the
    same answer, as often as it is sent; with another body it is refused. `stream` follows it in
    server-sent events; take them up again with `Last-Event-ID`."""
    event, is_followed = stated
    agent = await run_in_thread(caller.agents.get, reference)
    return await taken(request, caller, agent, event, after if is_followed else None)


async def taken(
    request: Request, caller: PrincipalServices, agent: AgentRecord, event: Event, after: int | None
) -> Response:
    """Accept an event and have it answered; `after`: to be followed from behind this entry."""
    accepted = await _accepted(request, caller, agent, event)
    crew: WorkerPool = request.app.state.crew
    await crew.take(caller.dispatcher, accepted)
    if after is not None:
        return streamed(request, caller.dispatcher, agent.id, event.id, after)
    status = await run_in_thread(caller.dispatcher.status, agent.id, event.id)
    return _answered(request, status, agent)


@router.get(
    "/events/{eventId:path}/stream",
    summary="Follow an event",
    response_model=None,
    responses={
        200: {"description": "Server-sent events.", "content": {EVENT_STREAM: {"schema": EVENT}}}
    },
)
async def follow_event(
    request: Request, caller: Caller, reference: AgentPath, event_id: EventPath, after: After
) -> Response:
    """Its turn's entries behind `Last-Event-ID`, what its turn tells, and last its outcome."""
    agent = await run_in_thread(caller.agents.get, reference)
    await run_in_thread(caller.dispatcher.status, agent.id, event_id)
    return streamed(request, caller.dispatcher, agent.id, event_id, after)


@router.get(
    "/events/{eventId:path}",
    summary="Show what became of an event",
    response_model=None,
    responses=answers(STATUS),
)
async def show_event(
    request: Request,
    caller: Caller,
    reference: AgentPath,
    event_id: EventPath,
    query: Annotated[Patient, QueryOf()],
) -> Json:
    """For a day. `refused`: it was given back before anything happened, and may be sent again."""
    agent = await run_in_thread(caller.agents.get, reference)
    status = await settled(
        caller.dispatcher, agent.id, event_id, wait_s=query.wait, curfew=request.app.state.curfew
    )
    return Json(status.as_json())


async def _accepted(
    request: Request, caller: PrincipalServices, agent: AgentRecord, event: Event
) -> QueuedEvent:
    """What is new must be within the account's limits; what was taken before is answered anyway."""
    ingress = caller.dispatcher
    known = await run_in_thread(
        ingress.event_queue.claim, ingress.event_queue.claim_key(agent.id, event.id)
    )
    if known is None or known.refusal is not None:
        await run_in_thread(_check, application_of(request), caller, agent, event)
    return await ingress.enqueue(agent, event)


def _check(house: Application, caller: PrincipalServices, agent: AgentRecord, event: Event) -> None:
    """What would be given back is refused at once, where that is known already."""
    found = caller.conversations.find(agent.id, event.conversation_key)
    runs = found is not None and caller.dispatcher.event_queue.state(found).turn_id is not None
    house.limiter.check(caller.principal.account_id, waits=runs)
    if not event.is_answer or found is None or runs:
        return
    waiting = {call.id for call in caller.dispatcher.pending(found)}
    for answer in event.answers:
        if answer.call_id not in waiting:
            raise nothing_waits(answer.call_id)


def _answered(request: Request, status: EventStatus, agent: AgentRecord) -> Json:
    path = f"/v1/agents/{agent.id}/events/{quote(status.event_id, safe='')}"
    url = address_of(request, path)
    told = {**status.as_json(), "statusUrl": url}
    return Json(told, 200 if status.is_settled else 202, {"Location": url})
