"""What a model is asked and what it answers, in nobody's wire format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from harness.messages.message import Message
from workspaces.storage.records import Counter, JsonObject, Put

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))


@dataclass(frozen=True)
class ToolSpec:
    """Made once and shown with every request: so is what is known of it."""

    name: str
    description: str
    schema: JsonObject
    """JSON Schema of the input."""

    def as_json(self) -> JsonObject:
        return {"name": self.name, "description": self.description, "input_schema": self.schema}

    @cached_property
    def ascii_text(self) -> str:
        """As JSON without spaces."""
        return _ASCII.encode(self.as_json())

    @cached_property
    def characters(self) -> int:
        """Of the same, where no character is escaped that need not be."""
        return len(_JSON.encode(self.as_json()))


def tool_spec_of(data: JsonObject) -> ToolSpec:
    return ToolSpec(data["name"], data["description"], data["input_schema"])


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """Where a later request may still be the same: the provider is asked to keep what it has read up to
    the end of these. By position in the request."""

    system: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()


BREAKPOINTS_MAX = 4
"""What a provider takes."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    system: tuple[str, ...]
    """Blocks of the prompt, most stable first."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    breakpoints: Breakpoints = Breakpoints()

    def as_json(self) -> JsonObject:
        """All that the model reads, in the provider's notation."""
        return {
            "system": list(self.system),
            "messages": [message.as_sent() for message in self.messages],
            "tools": [tool.as_json() for tool in self.tools],
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """In tokens, as the provider counts them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    """Of `cache_write`, what is kept for an hour; the rest is kept for five minutes."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_hour + other.cache_write_hour,
        )

    @property
    def prompt(self) -> int:
        """All that the model was shown, wherever it was read from."""
        return self.input + self.cache_read + self.cache_write

    def as_json(self) -> JsonObject:
        return {
            "input": self.input,
            "output": self.output,
            "cacheRead": self.cache_read,
            "cacheWrite": self.cache_write,
            "cacheWriteHour": self.cache_write_hour,
        }


NO_USAGE = Usage()


def usage_of(data: JsonObject) -> Usage:
    return Usage(
        data["input"],
        data["output"],
        data["cacheRead"],
        data["cacheWrite"],
        data.get("cacheWriteHour", 0),
    )


CommitPuts = Callable[[Sequence[Put]], Sequence[Counter]]
"""Writes these and whatever else belongs into the same batch; the counters of these."""


@dataclass(frozen=True, slots=True)
class Reply:
    message: Message
    usage: Usage
    is_complete: bool = True
    """False when the provider cut it: its tool calls must not be run."""
    note: Callable[[CommitPuts], None] | None = field(default=None, compare=False, repr=False)
    """Notes what it has used up, where that is left to whoever stores it: both in one batch."""


FailureKind = Literal[
    "unreachable",  # no answer came
    "overloaded",  # the provider has no time for us now
    "broken",  # what came is no answer
    "key",  # the provider does not know us
    "budget",  # there is no money left, here or at the provider
    "refused",  # the provider does not take the request as it is
    "declined",  # the model does not want to answer
    "too_long",  # the request is longer than the model takes: nothing was answered
    "context_too_long",  # … and it cannot be made shorter
    "window_full",  # the answer filled what was left of the model's window
]


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """No reply: what happened, for a person, and what to do about it."""

    kind: FailureKind
    reason: str
    remedy: str
    usage: Usage = NO_USAGE
    """What was used up all the same."""
    wait_s: float | None = None
    """How long the provider asks to wait; None when it does not say."""
