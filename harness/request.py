"""What a model is asked and what it answers, in nobody's wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.message import Message
from workspaces.records import JsonObject


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str
    description: str
    schema: JsonObject
    """JSON Schema of the input."""


@dataclass(frozen=True, slots=True)
class Request:
    system: tuple[str, ...]
    """The parts of the prompt, most stable first."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """In tokens, as the provider counts them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )

    def as_json(self) -> JsonObject:
        return {
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
        }


NO_USAGE = Usage()


def usage_of(data: JsonObject) -> Usage:
    return Usage(data["input"], data["output"], data["cacheRead"], data["cacheWrite"])


@dataclass(frozen=True, slots=True)
class Reply:
    message: Message
    usage: Usage
    is_complete: bool = True
    """False when the provider cut it: its tool calls must not be run."""


FailureKind = Literal["unreachable", "overloaded", "refused", "key", "too_long", "broken"]


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """No reply: what happened, for a person, and what to do about it."""

    kind: FailureKind
    reason: str
    remedy: str
