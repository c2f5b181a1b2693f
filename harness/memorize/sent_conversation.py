"""A conversation that a caller sends with the call, because it lies on the caller's machine.

It is untrusted, and nothing but text that the caller itself will be shown: every message is sanitised as a
reader of transcripts would. Positions are those of its list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.memorize.local.local_message import (
    LocalConversation,
    LocalMessage,
    SaidPart,
    WholeConversation,
    raw_event_text,
    shown_title,
)
from harness.memorize.memorize_request import SnakeModel, Word
from workspaces.clock import Clock
from workspaces.errors import Refused
from workspaces.timestamp import stamp_of

MESSAGES_MAX = 50_000


class SentMessage(SnakeModel):
    position: Annotated[int, Field(ge=1)] | None = None
    """Its place in the list, counted from 1."""
    role: Literal["user", "assistant"]
    type: Literal["message", "tool_call", "tool_result"] = "message"
    uuid: Word | None = None
    timestamp: Annotated[str, Field(max_length=64)] | None = None
    text: str
    raw_event_index: Annotated[int, Field(ge=0, le=2**31)] | None = None


class SentConversation(SnakeModel):
    """A snapshot of a conversation, as `local_conversations_get` shows it."""

    id: Word
    provider: Literal["codex", "claude-code", "claude-desktop"]
    title: Annotated[str, Field(max_length=4000)] = ""
    project: Annotated[str, Field(max_length=4096)] | None = None
    parent: Word | None = None
    messages: Annotated[list[SentMessage], Field(max_length=MESSAGES_MAX)]
    raw_events: dict[str, dict[str, Any]] = Field(default={})
    """Raw events by their numbers. Those that a grounding cites are kept."""

    def whole(self, clock: Clock) -> WholeConversation:
        """Return the conversation in the form of all conversations.

        Raises: Refused if a position is not that of its message.
        """
        for place, one in enumerate(self.messages, start=1):
            if one.position not in (None, place):
                field = f"conversation.messages.{place - 1}.position"
                raise Refused(field, one.position, f"must be {place}, its place in the list")
        about = LocalConversation(
            self.id,
            self.provider,
            shown_title(self.title or next((one.text for one in self.messages), "")),
            self.project,
            stamp_of(clock.now()),
            parent=self.parent,
        )
        return WholeConversation(about, self._messages, self._raw_event)

    def _messages(self) -> Iterator[LocalMessage]:
        for place, one in enumerate(self.messages, start=1):
            index = place - 1 if one.raw_event_index is None else one.raw_event_index
            part = SaidPart(one.role, one.type, one.uuid, one.timestamp, one.text)
            yield part.message(place, index)

    def _raw_event(self, index: int) -> str | None:
        event = self.raw_events.get(str(index))
        return None if event is None else raw_event_text(event)
