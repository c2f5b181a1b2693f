"""Audiences: who listens to the turns that run in this process.

A turn tells on the *stage* of its conversation, whether anyone listens or not; a listener hears what is told
there, from whichever task or thread. What is told is a hint, and may be lost: the truth is the transcript.
So everything carries the number of the newest entry that was stored when it was told, and who has read
further already knows that it is old.

A listener's memory is bounded, because its reader may be slow or gone: then what is lost are the pieces of
the answer that come before its entry does, from some piece on, never one in between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from harness.messages.progress import Emit, Progress, TextArrived, Withdrawn
from workspaces.ids import ConversationId

HEARD_MAX = 256
"""What a listener keeps for its reader; consecutive texts count as one."""

TEXT_CHARACTERS_MAX = 256 * 1024
"""Of the texts among it; and of the answer under way, which who comes late hears from its beginning."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The transcript has come this far."""


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """Nothing more is told here for now: look what became of it."""


@dataclass(frozen=True, slots=True)
class Heard:
    entry: int
    """The newest that was stored when it was told."""
    told: Progress | Stored | ChannelClosed


class Subscriber:
    """Hears in any thread; read in one event loop, by one reader."""

    def __init__(self) -> None:
        self.is_dismissed = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._heard: list[Heard] = []
        self._characters = 0
        self._is_behind = False

    def hear(self, heard: Heard) -> None:
        with self._lock:
            self._keep(heard)
        self._rouse()

    def dismiss(self) -> None:
        """There is nothing more to wait for."""
        self.is_dismissed = True
        self._rouse()

    async def heard(self, wait_s: float) -> Sequence[Heard]:
        """What was told since the last time; nothing when nothing is told for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        with self._lock:
            self._wake.clear()
            heard, self._heard, self._characters = self._heard, [], 0
            if self.is_dismissed:
                self._wake.set()
        return heard

    def _keep(self, heard: Heard) -> None:
        match heard.told:
            case Stored() | ChannelClosed():
                self._is_behind = False
            case _ if self._is_behind:
                return
            case TextArrived(text):
                self._characters += len(text)
                if self._merged(heard, text):
                    return
            case _:
                pass
        self._heard.append(heard)
        if len(self._heard) > HEARD_MAX or self._characters > TEXT_CHARACTERS_MAX:
            self._fall_behind()

    def _merged(self, heard: Heard, text: str) -> bool:
        before = self._heard[-1] if self._heard else None
        if before is None or not isinstance(before.told, TextArrived):
            return False
        if before.entry != heard.entry or self._characters > TEXT_CHARACTERS_MAX:
            return False
        self._heard[-1] = Heard(heard.entry, TextArrived(before.told.text + text))
        return True

    def _fall_behind(self) -> None:
        """Only how far the transcript has come is kept."""
        self._is_behind = True
        self._heard = [Heard(self._heard[-1].entry, Stored())]
        self._characters = 0

    def _rouse(self) -> None:
        with suppress(RuntimeError):  # its loop has ended, and nobody reads any more
            self._loop.call_soon_threadsafe(self._wake.set)


class Channel:
    """Where the turns of one conversation tell, one after the other."""

    def __init__(self) -> None:
        self.is_live = False
        self.listeners: list[Subscriber] = []
        self._lock = threading.Lock()
        self._entry = 0
        self._text: list[str] = []
        self._characters = 0
        """Of the answer under way."""

    def begin(self, entry: int) -> None:
        """The newest entry is this one."""
        self._entry = entry
        self.is_live = True

    def emit(self, progress: Progress) -> None:
        with self._lock:
            match progress:
                case TextArrived(text) if self._characters < TEXT_CHARACTERS_MAX:
                    self._text.append(text)
                    self._characters += len(text)
                case Withdrawn():
                    self._forget_text()
                case _:
                    pass
            self._tell(progress)

    def stored(self, entry: int) -> None:
        with self._lock:
            self._entry = entry
            self._forget_text()
            self._tell(Stored())

    def end(self) -> None:
        with self._lock:
            self.is_live = False
            self._forget_text()
            self._tell(ChannelClosed())

    def enter(self, listener: Subscriber) -> None:
        """Who comes late hears the answer under way from its beginning."""
        with self._lock:
            self.listeners.append(listener)
            if self.is_live:
                listener.hear(Heard(self._entry, Stored()))
                if self._text:
                    listener.hear(Heard(self._entry, TextArrived("".join(self._text))))

    def leave(self, listener: Subscriber) -> None:
        with self._lock:
            self.listeners.remove(listener)

    def _tell(self, told: Progress | Stored | ChannelClosed) -> None:
        for listener in self.listeners:
            listener.hear(Heard(self._entry, told))

    def _forget_text(self) -> None:
        self._text = []
        self._characters = 0


class Broadcaster:
    """All stages of a process."""

    def __init__(self) -> None:
        self._stages: dict[ConversationId, Channel] = {}
        self._uses: dict[ConversationId, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def stage(self, conversation_id: ConversationId) -> Generator[Channel]:
        """For whoever runs a turn of this conversation."""
        with self._used(conversation_id) as stage:
            try:
                yield stage
            finally:
                stage.end()

    @contextmanager
    def listening(self, conversation_id: ConversationId) -> Generator[Subscriber]:
        """To the turns of this conversation, whenever one runs here."""
        listener = Subscriber()
        with self._used(conversation_id) as stage:
            stage.enter(listener)
            try:
                yield listener
            finally:
                stage.leave(listener)

    @contextmanager
    def _used(self, conversation_id: ConversationId) -> Generator[Channel]:
        with self._lock:
            stage = self._stages.setdefault(conversation_id, Channel())
            self._uses[conversation_id] = self._uses.get(conversation_id, 0) + 1
        try:
            yield stage
        finally:
            with self._lock:
                self._uses[conversation_id] -= 1
                if not self._uses[conversation_id]:
                    del self._uses[conversation_id], self._stages[conversation_id]


def both(one: Emit, other: Emit) -> Emit:
    def emit(progress: Progress) -> None:
        one(progress)
        other(progress)

    return emit
