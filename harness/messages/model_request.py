"""Requests to a model and its replies, independent of any provider's wire format."""

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
    """The description of a tool. It is sent with every request, so its texts are computed once."""

    name: str
    description: str
    schema: JsonObject
    """The JSON Schema of the input."""

    def as_json(self) -> JsonObject:
        return {"name": self.name, "description": self.description, "input_schema": self.schema}

    @cached_property
    def ascii_text(self) -> str:
        """Return the description as ASCII JSON without spaces."""
        return _ASCII.encode(self.as_json())

    @cached_property
    def characters(self) -> int:
        """Return the number of characters of that JSON if characters are escaped only where necessary."""
        return len(_JSON.encode(self.as_json()))


def tool_spec_of(data: JsonObject) -> ToolSpec:
    return ToolSpec(data["name"], data["description"], data["input_schema"])


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """The positions up to which a later request may be equal. The provider is asked to cache the request up
    to the end of these blocks."""

    system: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    system: tuple[str, ...]
    """The blocks of the prompt, most stable first."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    breakpoints: Breakpoints = Breakpoints()
    forced_tool: str | None = None
    """The tool that the reply must call, so that it has the form of that tool's schema."""

    def as_json(self) -> JsonObject:
        """Return everything that the model reads, in the provider's notation."""
        return {
            "system": list(self.system),
            "messages": [message.as_sent() for message in self.messages],
            "tools": [tool.as_json() for tool in self.tools],
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a request and its reply, as the provider counts them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    """The part of `cache_write` that is cached for an hour; the rest is cached for five minutes."""

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
        """Return the tokens of everything that the model read, whether cached or not."""
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
"""Writes these records in one batch with the caller's own, and returns the counters of these."""


@dataclass(frozen=True, slots=True)
class Reply:
    message: Message
    usage: Usage
    is_complete: bool = True
    """False if the provider cut the reply: its tool calls must not be run."""
    note: Callable[[CommitPuts], None] | None = field(default=None, compare=False, repr=False)
    """Records the usage in the batch that stores the reply. None if the model recorded it itself."""


FailureKind = Literal[
    "unreachable",  # the provider did not answer
    "overloaded",  # the provider is too busy at the moment
    "broken",  # the provider's answer is invalid
    "key",  # the provider rejects the API key
    "budget",  # no money is left, here or at the provider
    "refused",  # the provider rejects the request as invalid
    "declined",  # the model declines to answer
    "too_long",  # the request is longer than the model accepts: no answer came
    "context_too_long",  # the same, and the request cannot be shortened
    "window_full",  # the answer filled the rest of the model's window
]


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A failed request: a reason and a remedy for a person."""

    kind: FailureKind
    reason: str
    remedy: str
    usage: Usage = NO_USAGE
    """The usage that is billed although no reply came."""
    wait_s: float | None = None
    """Seconds that the provider asks to wait; None if it does not say."""
