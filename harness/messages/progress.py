"""Progress of a running turn, as its caller sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.messages.message import ToolCall, ToolResult
from harness.messages.model_request import Usage


@dataclass(frozen=True, slots=True)
class TextArrived:
    text: str
    part: int = 0
    """The part of the answer to which the text belongs. Each part has another number than the one before."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolEnded:
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pause before the next try, because the provider asked for it or failed temporarily."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The withdrawal of the text that was streamed so far: the answer broke off and will begin again."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The usage of the running request so far."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Queued:
    """The position of an event whose conversation is in use: the number of events before it."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Compacting:
    """The start of a compaction, which takes a while: the conversation is summarised for the model."""

    characters: int
    """The length of the context, in characters."""


Progress = (
    TextArrived | ToolStarted | ToolEnded | Waiting | Withdrawn | Counted | Queued | Compacting
)

Emit = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    del progress
