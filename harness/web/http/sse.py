"""Stream a turn as server-sent events, with the event names of docs/turns.md.

Only entries have an id, which is their number. A reader that lost the connection continues after the last
entry it read. Between entries come events that need not be repeated: pieces of the answer, running tools. The
last event is `outcome`. If a stream ends without it, the reader should reconnect.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, assert_never, get_args

from fastapi import Header, Request
from starlette.responses import StreamingResponse

from harness.conversations.event_status import EventStatus
from harness.conversations.export import entry_line
from harness.messages.progress import (
    Compacting,
    Counted,
    Progress,
    Queued,
    TextArrived,
    ToolEnded,
    ToolStarted,
    Waiting,
    Withdrawn,
)
from harness.transcripts.transcript import Entry
from harness.turns.dispatcher import Dispatcher
from harness.turns.event_stream import Disconnect, KeepAlive, StreamItem, stream_events
from harness.web.http.errors import refused
from harness.web.http.route_docs import Schema, left_out, schema_of
from workspaces.errors import Failure, NotFound, Refused
from workspaces.ids import AgentId
from workspaces.validation import StrictModel

RETRY_MS = 1_000
"""Milliseconds after which a reader reconnects. By then a restarted server is back."""

EVENT_STREAM = "text/event-stream"

StreamEventName = Literal[
    "entry",
    "step",
    "text",
    "withdrawn",
    "tool_started",
    "tool_ended",
    "queued",
    "retrying",
    "compacting",
    "outcome",
    "refused",
    "reconnect",
]
NAMES: tuple[StreamEventName, ...] = get_args(StreamEventName)


class ServerSentEvent(StrictModel):
    """An event of a stream."""

    event: StreamEventName = left_out()
    data: str = left_out()
    id: str = left_out()
    retry: int = left_out()


EVENT: Schema = schema_of(ServerSentEvent)

ENTRY_DIGITS_MAX = 12

_HEADERS = {"X-Accel-Buffering": "no"}
"""Headers that keep a proxy from buffering the stream."""


async def resumed_from(
    number: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The number of the newest entry that was read."),
    ] = None,
) -> int:
    if number is None:
        return 0
    if not (number.isascii() and number.isdigit() and len(number) <= ENTRY_DIGITS_MAX):
        raise Refused("Last-Event-ID", number, "must be the number of an entry")
    return int(number)


def streamed(
    request: Request, dispatcher: Dispatcher, agent_id: AgentId, event_id: str, after: int
) -> StreamingResponse:
    state = request.app.state
    sign_s = state.timeouts.sign_s
    steps = stream_events(
        dispatcher, agent_id, event_id, after=after, shutdown=state.shutdown, keep_alive_s=sign_s
    )
    return StreamingResponse(_encoded(steps), headers=_HEADERS, media_type=EVENT_STREAM)


async def _encoded(steps: AsyncGenerator[StreamItem]) -> AsyncGenerator[bytes]:
    """Yield the encoded events. Report failures as events: the status of the response is already sent."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    try:
        async for step in steps:
            if data := encode(step):
                yield data
    except NotFound as failure:  # the conversation was deleted
        yield encoded_event("refused", json.loads(bytes(refused(failure).body)))
    except Failure:  # a store does not answer: it may answer after a reconnect
        yield encoded_event("reconnect", {})
    finally:
        await steps.aclose()


def encode(step: StreamItem) -> bytes:
    match step:
        case Entry():
            return encoded_event("entry", entry_line(step), step.number)
        case EventStatus():
            return encoded_event("outcome", step.as_json())
        case KeepAlive():
            return b": still there\n\n"
        case Disconnect():
            return encoded_event("reconnect", {})
        case _:
            return _encode_progress(step)


def _encode_progress(progress: Progress) -> bytes:
    match progress:
        case TextArrived(text):
            return encoded_event("text", {"text": text})
        case ToolStarted(call):
            return encoded_event("tool_started", {"id": call.id, "name": call.name})
        case ToolEnded(call, result):
            data = {"id": call.id, "name": call.name, "isError": result.is_error}
            return encoded_event("tool_ended", data)
        case Withdrawn():
            return encoded_event("withdrawn", {})
        case Waiting(reason, seconds):
            return encoded_event("retrying", {"reason": reason, "seconds": round(seconds, 1)})
        case Compacting(characters):
            return encoded_event("compacting", {"characters": characters})
        case Queued(ahead):
            return encoded_event("queued", {"ahead": ahead})
        case Counted():
            return b""
        case _:
            assert_never(progress)


_LINE_ENDS = {end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Line ends of Unicode that JSON does not escape. This protocol ignores them; many line readers do not."""


def encoded_event(name: str, data: Any, number: int | None = None) -> bytes:
    """Encode an event. The data is always one line, for every reader's idea of a line end."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii():
        for end, escaped in _LINE_ENDS.items():  # `translate` would look at each character
            text = text.replace(end, escaped)
    place = "" if number is None else f"id: {number}\n"
    return f"event: {name}\n{place}data: {text}\n\n".encode(errors="backslashreplace")
