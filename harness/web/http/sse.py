"""An event as it happens, in server-sent events: the vocabulary of docs/turns.md.

Only entries have an id, their number; so that is where a reader who lost the connection goes on. Between
them comes what need not come twice: pieces of the answer, tools at work. The last one is `outcome`; a
stream that ends without it is to be taken up again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, assert_never

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
from harness.web.http.route_docs import NUMBER, TEXT, Schema, object_of
from workspaces.errors import Failure, NotFound, Refused
from workspaces.ids import AgentId

RETRY_MS = 1_000
"""After so long a reader takes a stream up again: by then a server that was replaced is back."""

EVENT_STREAM = "text/event-stream"

NAMES = (
    "entry",
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
)

EVENT: Schema = object_of(
    {"event": {"enum": list(NAMES)}, "data": TEXT, "id": TEXT, "retry": NUMBER},
    optional=["event", "data", "id", "retry"],
)

ENTRY_DIGITS_MAX = 12

_HEADERS = {"X-Accel-Buffering": "no"}
"""So that no proxy saves it up."""


async def resumed_from(
    stated: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description="The number of the newest entry that was read."),
    ] = None,
) -> int:
    if stated is None:
        return 0
    if not (stated.isascii() and stated.isdigit() and len(stated) <= ENTRY_DIGITS_MAX):
        raise Refused("Last-Event-ID", stated, "must be the number of an entry")
    return int(stated)


def streamed(
    request: Request, ingress: Dispatcher, agent_id: AgentId, event_id: str, after: int
) -> StreamingResponse:
    state = request.app.state
    sign_s = state.patience.sign_s
    steps = stream_events(
        ingress, agent_id, event_id, after=after, shutdown=state.curfew, keep_alive_s=sign_s
    )
    return StreamingResponse(_written(steps), headers=_HEADERS, media_type=EVENT_STREAM)


async def _written(steps: AsyncGenerator[StreamItem]) -> AsyncGenerator[bytes]:
    """The answer has begun: what goes wrong now cannot be said by its status."""
    yield f"retry: {RETRY_MS}\n\n".encode()
    try:
        async for step in steps:
            if told := written(step):
                yield told
    except NotFound as failure:  # it was deleted
        yield _event("refused", json.loads(bytes(refused(failure).body)))
    except Failure:  # a store that does not answer may answer the next time
        yield _event("reconnect", {})
    finally:
        await steps.aclose()


def written(step: StreamItem) -> bytes:
    match step:
        case Entry():
            return _event("entry", entry_line(step), step.number)
        case EventStatus():
            return _event("outcome", step.as_json())
        case KeepAlive():
            return b": still there\n\n"
        case Disconnect():
            return _event("reconnect", {})
        case _:
            return _told(step)


def _told(progress: Progress) -> bytes:
    match progress:
        case TextArrived(text):
            return _event("text", {"text": text})
        case ToolStarted(call):
            return _event("tool_started", {"id": call.id, "name": call.name})
        case ToolEnded(call, result):
            told = {"id": call.id, "name": call.name, "isError": result.is_error}
            return _event("tool_ended", told)
        case Withdrawn():
            return _event("withdrawn", {})
        case Waiting(reason, seconds):
            return _event("retrying", {"reason": reason, "seconds": round(seconds, 1)})
        case Compacting(characters):
            return _event("compacting", {"characters": characters})
        case Queued(ahead):
            return _event("queued", {"ahead": ahead})
        case Counted():
            return b""
        case _:
            assert_never(progress)


_LINE_ENDS = {end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""That JSON leaves as they are. To this protocol they are none, but to many that read lines."""


def _event(name: str, data: Any, number: int | None = None) -> bytes:
    """The data is always one line, whatever its reader takes for the end of one."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii():
        for end, escaped in _LINE_ENDS.items():  # `translate` would look at each character
            text = text.replace(end, escaped)
    place = "" if number is None else f"id: {number}\n"
    return f"event: {name}\n{place}data: {text}\n\n".encode(errors="backslashreplace")
