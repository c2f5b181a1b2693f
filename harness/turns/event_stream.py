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
from harness.turns.broadcast import ChannelClosed, ChannelMessage, Stored, Subscriber
from harness.turns.dispatcher import Dispatcher
from workspaces.ids import AgentId

LOOK_S_MIN, LOOK_S_MAX = 0.05, 1.0
"""Seconds between two polls of an event about which this process publishes nothing."""

KEEP_ALIVE_S = 15.0
"""Seconds without an item until a keep-alive is sent. Proxies close idle connections after thirty seconds and
more."""


NO_ENTRY = 10**12
"""A number larger than any entry's. Pass it as `after` to skip all entries."""


class ShutdownNotice:
    """A notice to all streaming clients that the process shuts down. Any thread may call it."""

    def __init__(self) -> None:
        self._is_called = False
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()

    def call(self) -> None:
        with self._lock:
            self._is_called = True
            for subscriber in self._subscribers:
                subscriber.dismiss()

    @contextmanager
    def notifying(self, subscriber: Subscriber) -> Generator[None]:
        with self._lock:
            self._subscribers.append(subscriber)
            if self._is_called:
                subscriber.dismiss()
        try:
            yield
        finally:
            with self._lock:
                self._subscribers.remove(subscriber)


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """An item that says only that the stream is alive: no other item came for a while."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """An item that asks the client to disconnect, because this process is about to end."""


T = TypeVar("T")

StreamItem = Entry | Progress | EventStatus | KeepAlive | Disconnect


async def stream_events(
    dispatcher: Dispatcher,
    agent_id: AgentId,
    event_id: str,
    *,
    after: int = 0,
    shutdown: ShutdownNotice,
    keep_alive_s: float = KEEP_ALIVE_S,
) -> AsyncGenerator[StreamItem]:
    """Yield the entries behind `after`, the progress and the final status of an event.

    After `keep_alive_s` without an item, a keep-alive is yielded.

    Raises: NotFound before the first item, or when the conversation is deleted during the stream.
    """
    status = await run_in_thread(dispatcher.status, agent_id, event_id)
    reader = _Reader(dispatcher, agent_id, status, after)
    subscription = dispatcher.broadcaster.subscribe(status.conversation_id)
    with subscription as subscriber, shutdown.notifying(subscriber):
        pause, keep_alive = LOOK_S_MIN, _KeepAliveTimer(keep_alive_s)
        messages: Sequence[ChannelMessage] = ()
        while True:
            for message in messages:
                for item in await reader.items_of(message):
                    yield keep_alive.restart(item)
            if not messages or isinstance(messages[-1].content, ChannelClosed):
                for item in await run_in_thread(reader.look):
                    yield keep_alive.restart(item)
                if reader.status.is_at_rest:
                    return
            if subscriber.is_dismissed:
                yield Disconnect()
                return
            if keep_alive.is_due:
                yield keep_alive.restart(KeepAlive())
            messages = await subscriber.read(pause)
            pause = LOOK_S_MIN if messages else min(pause * 1.5, LOOK_S_MAX)


async def wait_for_status(
    dispatcher: Dispatcher,
    agent_id: AgentId,
    event_id: str,
    *,
    wait_s: float,
    shutdown: ShutdownNotice,
) -> EventStatus:
    """Return the status of an event as soon as the event needs no more work, or after `wait_s`."""
    if wait_s > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                async for item in stream_events(
                    dispatcher, agent_id, event_id, after=NO_ENTRY, shutdown=shutdown
                ):
                    if isinstance(item, EventStatus):
                        return item
    return await run_in_thread(dispatcher.status, agent_id, event_id)


class _Reader:
    """A reader of one event: of its entries, each once, and of its status."""

    def __init__(
        self, dispatcher: Dispatcher, agent_id: AgentId, status: EventStatus, after: int
    ) -> None:
        self.status = status
        self._dispatcher = dispatcher
        self._agent_id = agent_id
        self._after = after
        self._ahead = 0

    def look(self) -> list[StreamItem]:
        """Return all items that are new since the last look."""
        status = self._dispatcher.status(self._agent_id, self.status.event_id)
        self.status = status
        items: list[StreamItem] = list(self._entries(None))
        if status.is_at_rest:
            items.append(status)
        elif not self._is_begun and status.ahead != self._ahead:
            self._ahead = status.ahead
            items.append(Queued(status.ahead))
        return items

    async def items_of(self, message: ChannelMessage) -> Sequence[StreamItem]:
        match message.content:
            case Stored() if not self._is_begun:
                return await run_in_thread(self.look)
            case Stored() if message.entry > self._after:
                return await run_in_thread(self._entries, message.entry)
            case Stored() | ChannelClosed() | Counted():  # nothing for the client
                return ()
            case progress:
                return (progress,) if message.entry >= self._after and self._is_begun else ()

    @property
    def _is_begun(self) -> bool:
        """True if the event's turn has begun. Progress before that belongs to other events."""
        return self.status.first is not None

    def _entries(self, last: int | None) -> list[Entry]:
        """Return the new entries of the event's own turn."""
        first, turn_id = self.status.first, self.status.turn_id
        if first is None:
            return []
        conversations = self._dispatcher.conversations
        transcript = conversations.transcript(conversations.get(self.status.conversation_id))
        newer = transcript.entries(max(self._after + 1, first), last)
        entries = list(takewhile(lambda entry: entry.turn_id == turn_id, newer))
        if not self._after:
            entries = self._from_own_event(entries)
        if entries:
            self._after = entries[-1].number
        return entries

    def _from_own_event(self, entries: list[Entry]) -> list[Entry]:
        """Drop the entries before the event's own: an answer begins in the middle of a turn."""
        event_id = self.status.event_id
        mine = (at for at, entry in enumerate(entries) if entry.event_id == event_id)
        return entries[next(mine, 0) :]


class _KeepAliveTimer:
    """A timer for keep-alives: it holds when the last item was sent."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._at = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._at >= self._every_s

    def restart(self, item: T) -> T:
        self._at = time.monotonic()
        return item
