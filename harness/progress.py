"""What a turn tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.message import ToolCall, ToolResult


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


Progress = TextArrived | ToolStarted | ToolEnded | Waiting

Emit = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    del progress
