"""The provider's Messages endpoint on this machine, streaming or not: scripted in what it answers, strict in
what it takes.

Every request is held against the rules that the provider documents. One that breaks a rule is answered
as the provider would, 400 and the rule, and is kept in `broken_rules`: the fixture fails the test for
it, so that no test passes by accident on a request which the provider would refuse. Thinking must come
back exactly as it was sent out, with its signature.

Two refusals are no broken rules, because a caller cannot know better: a prompt longer than the window
(`window_tokens`, at four characters a token), and, with `binds_thinking`, thinking that comes back behind
another system prompt, other tools or other messages than it was made behind. The provider does the latter
for accounts made since the end of August 2026 and models since Opus 5.5.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.harness.messages_rules import Block, Body, broken_rule, canonical

KEY = "sk-test-key"
TOKEN_CHARACTERS = 4
REQUEST_BYTES_MAX = 32 * 2**20
START_S_MAX = 30.0
HOLD_S_MAX = 120.0

Event = bytes


class Drop:
    """Break the connection here, within the stream."""


class Hold:
    """Stay silent here until the client goes, and know that it went."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.left = threading.Event()


@dataclass(frozen=True)
class Streamed:
    events: Sequence[Event | Drop | Hold]


@dataclass(frozen=True)
class Refusal:
    """No stream: a status, and an error of the provider's kind or a body of somebody else's."""

    status: int
    kind: str = "api_error"
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


Line = Streamed | Refusal


def text(*pieces: str) -> list[Event]:
    return _block({"type": "text", "text": ""}, ({"text": piece} for piece in pieces), "text_delta")


def thinking(*pieces: str, signature: str = "SIGNATURE==") -> list[Event]:
    """`signature` empty: the stream ends before the provider has signed."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    events = _block(start, ({"thinking": piece} for piece in pieces), "thinking_delta")
    if signature:
        delta = {"type": "signature_delta", "signature": signature}
        events.insert(-1, _event("content_block_delta", {"index": 0, "delta": delta}))
    return events


def server_tool_use(call_id: str, name: str, *pieces: str) -> list[Event]:
    """A use of one of the provider's own tools."""
    start = {"type": "server_tool_use", "id": call_id, "name": name, "input": {}}
    return _block(start, ({"partial_json": piece} for piece in pieces), "input_json_delta")


def tool_use(call_id: str, name: str, *pieces: str) -> list[Event]:
    """The input as JSON text, in whatever pieces."""
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return _block(start, ({"partial_json": piece} for piece in pieces), "input_json_delta")


def says(
    *blocks: list[Event],
    stop: str | None = None,
    output: int = 7,
    details: dict[str, Any] | None = None,
) -> Streamed:
    """A whole answer. Its stop reason is the one that fits its blocks unless another is given."""
    events = [_started()]
    for index, block in enumerate(blocks):
        events += [_renumbered(event, index) for event in block]
    fitting = "tool_use" if any(b'"tool_use"' in event for event in events) else "end_turn"
    delta = {"stop_reason": stop or fitting, "stop_sequence": None, "stop_details": details}
    events.append(_event("message_delta", {"delta": delta, "usage": {"output_tokens": output}}))
    events.append(_event("message_stop", {}))
    return Streamed(events)


def breaks_off(*blocks: list[Event], ending: Sequence[Event | Drop | Hold] = ()) -> Streamed:
    """An answer that ends within: simply, or with what `ending` says."""
    whole = says(*blocks).events
    return Streamed([*whole[: len(whole) - 2], *ending])


def error_event(kind: str, message: str = "no") -> Event:
    return _event("error", {"error": {"type": kind, "message": message}})


class MessagesServer:
    def __init__(self) -> None:
        self.url = ""
        self.forget()

    def forget(self) -> None:
        """Begin as if nothing had been said or asked."""
        self.requests: list[Body] = []
        """The bodies of all requests that kept the rules, in their order."""
        self.heads: list[dict[str, str]] = []
        """And their headers."""
        self.broken_rules: list[str] = []
        self.refused: list[str] = []
        """What was refused though it broke no rule."""
        self.callers: set[tuple[str, int]] = set()
        """The connections that questions came over."""
        self.window_tokens = 1_000_000
        self.binds_thinking = False
        self._lines: list[Line] = []
        self._issued: dict[str, str] = {}
        self._paused: list[str] = []
        self._behind: dict[str, str] = {}

    def answers(self, *lines: Line) -> None:
        """What to say to the next requests. A request after the last line is a broken rule."""
        self._lines += lines
        for line in lines:
            if isinstance(line, Streamed):
                self._issued |= _signed_thinking(line.events)

    @property
    def left_unsaid(self) -> int:
        return len(self._lines)

    async def endpoint(self, request: Request) -> Response:
        if not _is_known(request):
            return _error(401, "authentication_error", "invalid x-api-key")
        if request.client is not None:
            self.callers.add((request.client.host, request.client.port))
        data = await request.body()
        if len(data) > REQUEST_BYTES_MAX:
            return _error(413, "request_too_large", "Request exceeds the maximum size")
        body = json.loads(data)
        rule = broken_rule(body, self._issued, self._paused)
        if rule is not None:
            self.broken_rules.append(rule)
            return _error(400, "invalid_request_error", rule)
        refused = self._too_long(len(data)) or (
            self._unbound(body) if self.binds_thinking else None
        )
        if refused is not None:
            self.refused.append(refused)
            return _error(400, "invalid_request_error", refused)
        if not self._lines:
            self.broken_rules.append("the script is over")
            return _error(400, "invalid_request_error", "the script is over")
        self.requests.append(body)
        self.heads.append(dict(request.headers))
        line = self._lines.pop(0)
        if isinstance(line, Streamed):
            self._remember(body, line)
            if not body.get("stream"):
                return JSONResponse(message_of(line.events))
            return StreamingResponse(_stream(line.events), media_type="text/event-stream")
        if line.body is not None:
            return Response(line.body, line.status, line.headers)
        return _error(line.status, line.kind, line.message, line.headers)

    def _too_long(self, size: int) -> str | None:
        tokens = size // TOKEN_CHARACTERS
        if tokens <= self.window_tokens:
            return None
        return f"prompt is too long: {tokens} tokens > {self.window_tokens} maximum"

    def _unbound(self, body: Body) -> str | None:
        for number, message in enumerate(body["messages"]):
            for block in message["content"]:
                if block["type"] != "thinking":
                    continue
                if self._behind.get(block["signature"]) != _prefix(body, number):
                    return f"messages.{number}: what precedes a `thinking` block has changed"
        return None

    def _remember(self, body: Body, line: Streamed) -> None:
        """What may come back: paused content as it was sent, thinking behind what it was made behind."""
        if any(b'"pause_turn"' in event for event in line.events if isinstance(event, bytes)):
            with suppress(ValueError):  # half an input never comes back as it was
                last = body["messages"][-1]
                before = last["content"] if last["role"] == "assistant" else []
                self._paused.append(canonical(before + content_of(line.events)))
        for signature in _signed_thinking(line.events):
            self._behind[signature] = _prefix(body, len(body["messages"]))


@contextmanager
def reserved() -> Generator[socket.socket]:
    """A free port of 127.0.0.1 at which nobody answers: whoever connects is refused, until the socket is
    given to `serving`."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def address(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def serving(at: socket.socket | None = None) -> Generator[MessagesServer]:
    """A server on a free port of 127.0.0.1, or on one that is reserved; in a thread, gone at the end."""
    scripted = MessagesServer()
    app = Starlette(routes=[Route("/v1/messages", scripted.endpoint, methods=["POST"])])
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http="h11", ws="none", lifespan="off", log_config=None
    )
    config.timeout_graceful_shutdown = 2
    server = uvicorn.Server(config)
    sockets = None if at is None else [at.dup()]
    thread = threading.Thread(target=server.run, args=[sockets], name="messages-server")
    thread.start()
    try:
        deadline = time.monotonic() + START_S_MAX
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the server does not start"
            thread.join(0.005)
        scripted.url = address(server.servers[0].sockets[0])
        yield scripted
    finally:
        server.should_exit = True
        thread.join(START_S_MAX)
    assert not thread.is_alive()


def content_of(events: Sequence[Event | Drop | Hold]) -> list[Block]:
    """The content that a stream puts together, as it may be sent back."""
    blocks: list[Block] = []
    for event in events:
        data = _data(event) if isinstance(event, bytes) else {}
        match data.get("type"), data.get("delta", {}).get("type"):
            case "content_block_start", _:
                blocks.append(dict(data["content_block"]))
            case _, "text_delta":
                blocks[-1]["text"] += data["delta"]["text"]
            case _, "thinking_delta":
                blocks[-1]["thinking"] += data["delta"]["thinking"]
            case _, "signature_delta":
                blocks[-1]["signature"] = data["delta"]["signature"]
            case _, "input_json_delta":
                pieces = blocks[-1].setdefault("pieces", [])
                pieces.append(data["delta"]["partial_json"])
    for block in blocks:
        if pieces := block.pop("pieces", None):
            block["input"] = json.loads("".join(pieces))
    return blocks


def message_of(events: Sequence[Event | Drop | Hold]) -> Body:
    """The whole message, for who does not want it streamed."""
    told = [_data(event) for event in events if isinstance(event, bytes)]
    (started,) = (data["message"] for data in told if data["type"] == "message_start")
    (ended,) = (data for data in told if data["type"] == "message_delta")
    usage = started["usage"] | ended["usage"]
    return started | ended["delta"] | {"content": content_of(events), "usage": usage}


def _prefix(body: Body, messages: int) -> str:
    """All that stands before a message, but for the marks of the cache."""
    whole = [body.get("tools", []), body.get("system", []), body["messages"][:messages]]
    text = re.sub(r'"cache_control": \{[^}]*\},? ?', "", canonical(whole))
    return hashlib.sha256(text.encode()).hexdigest()


def _is_known(request: Request) -> bool:
    stated = request.headers.get("authorization"), request.headers.get("x-api-key")
    return stated[0] == f"Bearer {KEY}" or stated[1] == KEY


def _error(
    status: int, kind: str, message: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return JSONResponse(body, status, headers)


async def _stream(events: Sequence[Event | Drop | Hold]) -> AsyncGenerator[Event]:
    for event in events:
        if isinstance(event, Drop):
            raise ConnectionResetError("dropped, as the script says")
        if isinstance(event, Hold):
            event.reached.set()
            try:
                await asyncio.sleep(HOLD_S_MAX)
            finally:
                event.left.set()
        else:
            yield event


def _event(name: str, data: Body) -> Event:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def _started() -> Event:
    usage = {
        "input_tokens": 11,
        "output_tokens": 1,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 100,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40},
    }
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "usage": usage,
    }
    return _event("message_start", {"message": message})


def _block(start: Block, deltas: Iterable[Body], kind: str) -> list[Event]:
    return [
        _event("content_block_start", {"index": 0, "content_block": start}),
        *(
            _event("content_block_delta", {"index": 0, "delta": {"type": kind, **delta}})
            for delta in deltas
        ),
        _event("content_block_stop", {"index": 0}),
    ]


def _renumbered(event: Event, index: int) -> Event:
    data = _data(event)
    return _event(data["type"], {**data, "index": index})


def _data(event: Event) -> Body:
    return json.loads(event.decode().partition("data: ")[2])


def _signed_thinking(events: Sequence[Event | Drop | Hold]) -> dict[str, str]:
    signed: dict[str, str] = {}
    so_far = ""
    for event in events:
        is_ours = isinstance(event, bytes) and event.startswith(b"event: content_block")
        data = _data(event) if is_ours else {}
        if data.get("type") == "content_block_start":
            so_far = ""
        delta = data.get("delta", {})
        so_far += delta.get("thinking", "")
        if "signature" in delta:
            signed[delta["signature"]] = so_far
    return signed
