"""Publish the progress of the turns that run in this process.

A turn publishes to the *channel* of its conversation, with or without subscribers. A subscriber receives
messages from any task or thread. A message is a hint and may be lost: the transcript is the truth. So every
message carries the number of the newest entry that was stored when the message was published. A reader that
has already read further discards the message as old.

A subscriber's buffer is bounded, because its reader may be slow or gone. On overflow the subscriber loses
pieces of the answer that precede the answer's entry: all pieces from some piece on, never one in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from harness.messages.progress import Emit, Progress, TextArrived, Withdrawn
from workspaces.ids import ConversationId

MESSAGES_MAX = 256
"""Messages that a subscriber buffers for its reader. Consecutive texts count as one message."""

TEXT_CHARACTERS_MAX = 256 * 1024
"""Characters of text in a subscriber's buffer. Also the limit for the current answer, which a late subscriber
receives from its beginning."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message that the transcript has grown up to the entry of the message."""


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A message that the turn has ended: nothing more is published for now.

    The reader looks up the result.
    """


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    entry: int
    """The newest stored entry when the message was published."""
    content: Progress | Stored | ChannelClosed


class Subscriber:
    """A subscriber to one channel. Any thread may send to it; one reader in one event loop reads from it."""

    def __init__(self) -> None:
        self.is_dismissed = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._messages: list[ChannelMessage] = []
        self._characters = 0
        self._is_behind = False

    def send(self, message: ChannelMessage) -> None:
        with self._lock:
            self._append(message)
        self._wake_reader()

    def dismiss(self) -> None:
        """Tell the reader that there is nothing more to wait for."""
        self.is_dismissed = True
        self._wake_reader()

    async def read(self, wait_s: float) -> Sequence[ChannelMessage]:
        """Return the messages since the last read; none if `wait_s` passes without one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        with self._lock:
            self._wake.clear()
            messages, self._messages, self._characters = self._messages, [], 0
            if self.is_dismissed:
                self._wake.set()
        return messages

    def _append(self, message: ChannelMessage) -> None:
        match message.content:
            case Stored() | ChannelClosed():  # the transcript now holds the lost texts
                self._is_behind = False
            case _ if self._is_behind:  # an earlier piece was lost: drop the later ones too
                return
            case TextArrived(text):
                self._characters += len(text)
                if self._merge(message, text):
                    return
            case _:
                pass
        self._messages.append(message)
        if len(self._messages) > MESSAGES_MAX or self._characters > TEXT_CHARACTERS_MAX:
            self._fall_behind()

    def _merge(self, message: ChannelMessage, text: str) -> bool:
        before = self._messages[-1] if self._messages else None
        if before is None or not isinstance(before.content, TextArrived):
            return False
        if before.entry != message.entry or self._characters > TEXT_CHARACTERS_MAX:
            return False
        self._messages[-1] = ChannelMessage(message.entry, TextArrived(before.content.text + text))
        return True

    def _fall_behind(self) -> None:
        """Drop the buffer, but keep how far the transcript has grown."""
        self._is_behind = True
        self._messages = [ChannelMessage(self._messages[-1].entry, Stored())]
        self._characters = 0

    def _wake_reader(self) -> None:
        with suppress(RuntimeError):  # the reader's loop has ended, and its reader with it
            self._loop.call_soon_threadsafe(self._wake.set)


class Channel:
    """The channel of one conversation, to which its turns publish one after the other."""

    def __init__(self) -> None:
        self.is_live = False
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()
        self._entry = 0
        self._text: list[str] = []
        self._characters = 0
        """Characters of the current answer."""

    def begin(self, entry: int) -> None:
        """Open the channel for a turn; `entry` is the newest stored entry."""
        self._entry = entry
        self.is_live = True

    def emit(self, progress: Progress) -> None:
        with self._lock:
            match progress:
                case TextArrived(text) if self._characters < TEXT_CHARACTERS_MAX:
                    self._text.append(text)
                    self._characters += len(text)
                case Withdrawn():
                    self._drop_text()
                case _:
                    pass
            self._publish(progress)

    def stored(self, entry: int) -> None:
        with self._lock:
            self._entry = entry
            self._drop_text()
            self._publish(Stored())

    def end(self) -> None:
        with self._lock:
            self.is_live = False
            self._drop_text()
            self._publish(ChannelClosed())

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber. A late subscriber receives the current answer from its beginning."""
        with self._lock:
            self._subscribers.append(subscriber)
            if self.is_live:
                subscriber.send(ChannelMessage(self._entry, Stored()))
                if self._text:
                    subscriber.send(ChannelMessage(self._entry, TextArrived("".join(self._text))))

    def remove(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers.remove(subscriber)

    def _publish(self, content: Progress | Stored | ChannelClosed) -> None:
        for subscriber in self._subscribers:
            subscriber.send(ChannelMessage(self._entry, content))

    def _drop_text(self) -> None:
        self._text = []
        self._characters = 0


class Broadcaster:
    """The channels of all conversations that this process runs or follows."""

    def __init__(self) -> None:
        self._channels: dict[ConversationId, Channel] = {}
        self._uses: dict[ConversationId, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def channel(self, conversation_id: ConversationId) -> Generator[Channel]:
        """Yield the channel of this conversation to the code that runs its turn; close it at the end."""
        with self._opened(conversation_id) as channel:
            try:
                yield channel
            finally:
                channel.end()

    @contextmanager
    def subscribe(self, conversation_id: ConversationId) -> Generator[Subscriber]:
        """Yield a subscriber to all turns of this conversation that run in this process."""
        subscriber = Subscriber()
        with self._opened(conversation_id) as channel:
            channel.add(subscriber)
            try:
                yield subscriber
            finally:
                channel.remove(subscriber)

    @contextmanager
    def _opened(self, conversation_id: ConversationId) -> Generator[Channel]:
        with self._lock:
            channel = self._channels.setdefault(conversation_id, Channel())
            self._uses[conversation_id] = self._uses.get(conversation_id, 0) + 1
        try:
            yield channel
        finally:
            with self._lock:
                self._uses[conversation_id] -= 1
                if not self._uses[conversation_id]:
                    del self._uses[conversation_id], self._channels[conversation_id]


def both(one: Emit, other: Emit) -> Emit:
    def emit(progress: Progress) -> None:
        one(progress)
        other(progress)

    return emit
