"""Turns over HTTP, as tests take them: a model that says what the test says, and a reader of streams."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.messages.message import Message, Text, ToolCall
from harness.messages.model_request import ModelFailure, ModelRequest, Reply, Usage
from harness.messages.progress import Emit, TextArrived
from tests.harness.web.site import Caller

WAIT_S = 60.0


class Puppet:
    """Says piece by piece what it is given, in whatever turn asks first."""

    name = "puppet"

    def __init__(self) -> None:
        self.asked: queue.Queue[str] = queue.Queue()
        """What was said last, for each question."""
        self._strings: queue.Queue[str | ToolCall | ModelFailure | None] = queue.Queue()

    def says(self, *pieces: str | ToolCall | ModelFailure) -> None:
        for piece in pieces:
            self._strings.put(piece)

    def stops(self, *pieces: str | ToolCall) -> None:
        """After these pieces the answer is whole."""
        self.says(*pieces)
        self._strings.put(None)

    def is_asked(self) -> str:
        return self.asked.get(timeout=WAIT_S)

    async def reply(
        self, request: ModelRequest, *, output_tokens_max: int, emit: Emit
    ) -> Reply | ModelFailure:
        self.asked.put(request.messages[-1].text)
        text, calls = "", list[ToolCall]()
        while (piece := await self._next()) is not None:
            if isinstance(piece, ModelFailure):
                return piece
            if isinstance(piece, ToolCall):
                calls.append(piece)
            else:
                text += piece
                emit(TextArrived(piece))
        parts = (*([Text(text)] if text else []), *calls)
        return Reply(Message("assistant", parts), Usage(1, 1))

    async def _next(self) -> str | ToolCall | ModelFailure | None:
        while True:
            try:
                return self._strings.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.002)  # the test speaks in another thread


def said(event_id: str, text: str = "hello", key: str = "c1", **more: Any) -> dict[str, Any]:
    """The body of a turn."""
    events = [{"type": "user", "content": text}]
    return {"eventId": event_id, "conversationKey": key, "events": events, **more}


def settled(caller: Caller, status_url: str, wait_s: int = 60) -> Any:
    return caller.get(f"{status_url}?wait={wait_s}")


def taken(caller: Caller, agent: str, event_id: str, *how: str, **more: Any) -> Any:
    """An event that is accepted, and what became of it."""
    body = said(event_id, *how, **more)
    accepted = caller.post(f"/v1/agents/{agent}/turns", body, 202)
    return settled(caller, accepted["statusUrl"])


@dataclass(frozen=True)
class Told:
    """One server-sent event."""

    name: str
    data: Any
    id: str | None = None


@contextmanager
def followed(
    caller: Caller, method: str, path: str, *, after: int | None = None, **more: Any
) -> Iterator[Iterator[Told]]:
    headers = {"Authorization": f"Bearer {caller.key}", **caller.headers}
    headers |= {} if after is None else {"Last-Event-ID": str(after)}
    with caller.client.stream(method, path, headers=headers, **more) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield told(answer.iter_lines())


def told(lines: Iterator[str]) -> Iterator[Told]:
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "event" in found:
            yield Told(found["event"], json.loads(found["data"]), found.get("id"))
            found = {}
