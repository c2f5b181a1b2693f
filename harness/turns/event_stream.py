"""Stream the results of one event as they arrive.

The stream yields in order the entries of the event's turn, each once, read from the transcript. Between them
it yields the progress of the turn, if the turn runs in this process. At the end it yields the event's status,
once nothing more happens to the event by itself. If the turn runs in another process, or has not begun, the
stream polls the transcript.

A running turn never waits for a client that streams it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from harness.conversations.event_status import EventStatus
from harness.messages.progress import Counted, Progress, Queued
from harness.runtime.async_bridge import run_in_thread
from harness.transcripts.transcript import Entry
from harness.turns.broadcast import ChannelClosed, Heard, Stored, Subscriber
from harness.turns.dispatcher import Dispatcher
from workspaces.ids import AgentId

LOOK_S_MIN, LOOK_S_MAX = 0.05, 1.0
"""Seconds between two polls of an event about which this process publishes nothing."""

SIGN_S = 15.0
"""Seconds without an item until a keep-alive is sent. Proxies close idle connections after thirty seconds and
more."""


NO_ENTRY = 10**12
"""A number larger than any entry's. Pass it as `after` to skip all entries."""


class ShutdownNotice:
    """A notice to all streaming clients that the process shuts down. Any thread may call it."""

    def __init__(self) -> None:
        self._is_called = False
        self._listeners: list[Subscriber] = []
        self._lock = threading.Lock()

    def call(self) -> None:
        with self._lock:
            self._is_called = True
            for listener in self._listeners:
                listener.dismiss()

    @contextmanager
    def over(self, listener: Subscriber) -> Generator[None]:
        with self._lock:
            self._listeners.append(listener)
            if self._is_called:
                listener.dismiss()
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """An item that says only that the stream is alive: no other item came for a while."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """An item that asks the client to disconnect, because this process is about to end."""


T = TypeVar("T")

StreamItem = Entry | Progress | EventStatus | KeepAlive | Disconnect


async def stream_events(
    ingress: Dispatcher,
    agent_id: AgentId,
    event_id: str,
    *,
    after: int = 0,
    curfew: ShutdownNotice,
    sign_s: float = SIGN_S,
) -> AsyncGenerator[StreamItem]:
    """Yield the entries behind `after`, the progress and the final status of an event.

    After `sign_s` without an item, a keep-alive is yielded.

    Raises: NotFound before the first item, or when the conversation is deleted during the stream.
    """
    status = await run_in_thread(ingress.status, agent_id, event_id)
    reader = _Reader(ingress, agent_id, status, after)
    listening = ingress.broadcaster.listening(status.conversation_id)
    with listening as listener, curfew.over(listener):
        pause, sign = LOOK_S_MIN, _Sign(sign_s)
        heard: Sequence[Heard] = ()
        while True:
            for one in heard:
                for step in await reader.heard(one):
                    yield sign.given(step)
            if not heard or isinstance(heard[-1].told, ChannelClosed):
                for step in await run_in_thread(reader.look):
                    yield sign.given(step)
                if reader.status.is_settled:
                    return
            if listener.is_dismissed:
                yield Disconnect()
                return
            if sign.is_due:
                yield sign.given(KeepAlive())
            heard = await listener.heard(pause)
            pause = LOOK_S_MIN if heard else min(pause * 1.5, LOOK_S_MAX)


async def settled(
    ingress: Dispatcher, agent_id: AgentId, event_id: str, *, wait_s: float, curfew: ShutdownNotice
) -> EventStatus:
    """Return the status of an event as soon as the event needs no more work, or after `wait_s`."""
    if wait_s > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async for step in stream_events(
                    ingress, agent_id, event_id, after=NO_ENTRY, curfew=curfew
                ):
                    if isinstance(step, EventStatus):
                        return step
    return await run_in_thread(ingress.status, agent_id, event_id)


class _Reader:
    """A reader of one event: of its entries, each once, and of its status."""

    def __init__(
        self, ingress: Dispatcher, agent_id: AgentId, status: EventStatus, after: int
    ) -> None:
        self.status = status
        self._ingress = ingress
        self._agent_id = agent_id
        self._after = after
        self._ahead = 0

    def look(self) -> list[StreamItem]:
        """Return all items that are new since the last look."""
        status = self._ingress.status(self._agent_id, self.status.event_id)
        self.status = status
        steps: list[StreamItem] = list(self._entries(None))
        if status.is_settled:
            steps.append(status)
        elif not self._is_begun and status.ahead != self._ahead:
            self._ahead = status.ahead
            steps.append(Queued(status.ahead))
        return steps

    async def heard(self, one: Heard) -> Sequence[StreamItem]:
        match one.told:
            case Stored() if not self._is_begun:
                return await run_in_thread(self.look)
            case Stored() if one.entry > self._after:
                return await run_in_thread(self._entries, one.entry)
            case Stored() | ChannelClosed() | Counted():  # nothing for the client
                return ()
            case progress:
                return (progress,) if one.entry >= self._after and self._is_begun else ()

    @property
    def _is_begun(self) -> bool:
        """True if the event's turn has begun. Progress before that belongs to other events."""
        return self.status.first is not None

    def _entries(self, last: int | None) -> list[Entry]:
        """Return the new entries of the event's own turn."""
        first, turn_id = self.status.first, self.status.turn_id
        if first is None:
            return []
        conversations = self._ingress.conversations
        transcript = conversations.transcript(conversations.get(self.status.conversation_id))
        found = transcript.entries(max(self._after + 1, first), last)
        entries = list(takewhile(lambda entry: entry.turn_id == turn_id, found))
        if not self._after:
            entries = self._own(entries)
        if entries:
            self._after = entries[-1].number
        return entries

    def _own(self, entries: list[Entry]) -> list[Entry]:
        """Drop the entries before the event's own: an answer begins in the middle of a turn."""
        event_id = self.status.event_id
        mine = (at for at, entry in enumerate(entries) if entry.event_id == event_id)
        return entries[next(mine, 0) :]


class _Sign:
    """A timer for keep-alives: it holds when the last item was sent."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._at = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._at >= self._every_s

    def given(self, step: T) -> T:
        self._at = time.monotonic()
        return step
