"""What a turn tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.messages.message import ToolCall, ToolResult
from harness.messages.model_request import Usage


@dataclass(frozen=True, slots=True)
class TextArrived:
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolEnded:
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is wrong yet: the provider asked for patience."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The answer broke off and will begin anew: what was told of it so far is void."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the question under way has used up by now."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Queued:
    """The conversation is in use; so many events come before this one."""

    ahead: int


@dataclass(frozen=True, slots=True)
class Compacting:
    """The conversation is being summarised for the model, which takes a while."""

    characters: int
    """How long its context has become."""


Progress = (
    TextArrived | ToolStarted | ToolEnded | Waiting | Withdrawn | Counted | Queued | Compacting
)

Emit = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    del progress
