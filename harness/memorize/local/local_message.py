"""The common form of conversations of all providers: their messages, and what a list says of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from harness.memorize.local.transcript_file import SkippedLines
from harness.memory.secrets import redact
from workspaces.timestamp import Stamp, stamp_of

Provider = Literal["codex", "claude-code", "claude-desktop", "harness"]

LocalRole = Literal["user", "assistant"]
LocalMessageType = Literal["message", "tool_call", "tool_result"]

TITLE_CHARACTERS_MAX = 120

MESSAGE_CHARACTERS_MAX = 100_000
"""Characters of a message that are shown. Longer ones are outputs of tools; they end in a note."""


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message lies. Its text is read when it is wanted."""

    file: Path
    offset: int
    raw_index: int
    """Number of its line, counted from 0 through all files of the conversation in order."""
    said: SaidPart | None = field(default=None, compare=False)
    """What it says, if that was kept when its line was read first."""


@dataclass(frozen=True, slots=True)
class LocalMessage:
    """What somebody said, or what a tool was asked and answered. Its text holds no secret."""

    position: int
    """Counted from 1."""
    role: LocalRole
    type: LocalMessageType
    uuid: str | None
    timestamp: str | None
    text: str
    raw_index: int

    def as_json(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "role": self.role,
            "type": self.type,
            "uuid": self.uuid,
            "timestamp": self.timestamp,
            "text": self.text,
            "raw_event_index": self.raw_index,
        }


@dataclass(frozen=True, slots=True)
class SaidPart:
    """What one line says, as it stands there."""

    role: LocalRole
    type: LocalMessageType
    uuid: str | None
    timestamp: str | None
    text: str

    def message(self, position: int, raw_index: int) -> LocalMessage:
        """Return the message without secrets, cut to what is shown."""
        text = redact(self.text)[0]  # first, so that no cut leaves a half of a secret
        if len(text) > MESSAGE_CHARACTERS_MAX:
            count = len(text) - MESSAGE_CHARACTERS_MAX
            text = f"{text[:MESSAGE_CHARACTERS_MAX]}\n[{count:,} more characters]"
        return LocalMessage(
            position,
            self.role,
            self.type,
            self.uuid,
            self.timestamp,
            text,
            raw_index=raw_index,
        )


@dataclass(slots=True)
class KeptTexts:
    """The texts that a reader keeps, so that it need not read their lines again: as many as there is room
    for."""

    room: int = 0
    """Characters."""

    def keep(self, said: SaidPart) -> SaidPart | None:
        """Return the part, or None if there is no room for it."""
        if len(said.text) > self.room:
            return None
        self.room -= len(said.text)
        return said


@dataclass(frozen=True, slots=True)
class LocalConversation:
    """A conversation of a list."""

    id: str
    provider: Provider
    title: str
    project: str | None
    """The directory in which the agent worked."""
    updated_at: Stamp
    parent: str | None = None
    """The conversation whose subagent this is."""
    is_archived: bool = False
    has_messages: bool = True
    """False: only its title and dates are on this machine."""

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "provider": self.provider,
            "title": self.title,
            "project": self.project,
            "updated_at": self.updated_at,
            "parent": self.parent,
            "archived": self.is_archived,
            "metadata_only": not self.has_messages,
        }


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """A file of a conversation, or the beginning of one."""

    file: Path
    first_index: int
    """The number of its first line in the whole conversation."""
    until: int | None = None
    """The byte at which it ends for this conversation. None: at its own end."""


@dataclass(frozen=True, slots=True)
class LocalTranscript:
    """The messages of a conversation by their places, and what was skipped on the way."""

    places: tuple[MessagePlace, ...]
    skipped: SkippedLines
    parts: tuple[TranscriptPart, ...] = ()


@dataclass(frozen=True, slots=True)
class WholeConversation:
    """A conversation to be archived. It is read from its beginning, in bounded memory."""

    about: LocalConversation
    messages: Callable[[], Iterator[LocalMessage]]
    raw_event: Callable[[int], str | None]
    """Returns a line as JSON, without secrets and token counts; None if there is no such line."""


_COUNTS = {
    "usage",
    "token_count",
    "total_token_usage",
    "last_token_usage",
    "rate_limits",
    "model_context_window",
}
"""Keys of a line that count tokens."""


def raw_event_text(event: Mapping[str, Any]) -> str:
    """Return a line as JSON, without secrets and token counts."""
    return redact(json.dumps(_without_counts(event), ensure_ascii=False))[0]


def _without_counts(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _without_counts(one) for key, one in fields.items() if key not in _COUNTS}
    if isinstance(value, list):
        return [_without_counts(one) for one in cast("list[Any]", value)]
    return value


def shown_title(text: str) -> str:
    """Return the first line of a text as a title, without secrets."""
    line = next((line.strip() for line in text[:4000].splitlines() if line.strip()), "")
    title = redact(line)[0]
    return title if len(title) <= TITLE_CHARACTERS_MAX else f"{title[: TITLE_CHARACTERS_MAX - 1]}…"


def stamp_at(seconds: float) -> Stamp:
    """Return the stamp of a time of the file system, or of another program."""
    try:
        return stamp_of(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):  # a number that is no time
        return stamp_of(datetime.fromtimestamp(0, UTC))
