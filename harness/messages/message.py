"""Messages between a person, a model and its tools, as they are stored and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never, cast

from workspaces.errors import Refused
from workspaces.storage.records import JsonObject

Role = Literal["user", "assistant"]

INVALID_JSON = "INVALID_JSON"
"""The only key of a tool call's input that was not a JSON object. Its value is the text as it came."""

FORBIDDEN_INPUT = "FORBIDDEN_TEXT"
"""The only key of a tool call's input that held a forbidden text. Its value is the input with marks."""

UNUSABLE_INPUTS = frozenset({INVALID_JSON, FORBIDDEN_INPUT})
"""A call whose input has one of these keys is not run."""


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A block of the provider, stored exactly as it came: its signature must match when it is replayed."""

    block: JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    input: JsonObject


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    text: str
    is_error: bool = False


Part = Text | Thinking | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    def as_json(self) -> JsonObject:
        return {"role": self.role, "parts": [part_as_json(part) for part in self.parts]}

    def as_sent(self) -> JsonObject:
        """Return the message in the provider's notation."""
        return {"role": self.role, "content": [part_as_json(part) for part in self.parts]}


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def message_of(data: JsonObject) -> Message:
    return Message(data["role"], tuple(_part_of(part) for part in data["parts"]))


_PART_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str, "content": str},
}
"""The fields that each kind of part must have. Parts of other kinds are the provider's and stored
unchanged."""


def check_part(field: str, part: object) -> None:
    """Check a part that an untrusted sender supplies.

    Raises: Refused with the name of the invalid field.
    """
    if not isinstance(part, Mapping):
        raise Refused(field, part, "must be an object")
    fields = cast("Mapping[str, object]", part)
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind:
        raise Refused(f"{field}.type", kind, "must name the kind of the part")
    for name, type_ in _PART_FIELDS.get(kind, {}).items():
        if not isinstance(fields.get(name), type_):
            words = {str: "a text", dict: "an object"}[type_]
            raise Refused(f"{field}.{name}", fields.get(name), f"must be {words}")


def part_as_json(part: Part) -> JsonObject:
    """Return the part in the provider's own notation, so that a transcript reads like its documentation."""
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(block):
            return block
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case ToolResult(call_id, text, is_error):
            error = {"is_error": True} if is_error else {}
            return {"type": "tool_result", "tool_use_id": call_id, "content": text, **error}
        case _:
            assert_never(part)


def _part_of(data: JsonObject) -> Part:
    match data["type"]:
        case "text":
            return Text(data["text"])
        case "tool_use":
            return ToolCall(data["id"], data["name"], data["input"])
        case "tool_result":
            return ToolResult(data["tool_use_id"], data["content"], data.get("is_error", False))
        case _:
            return Thinking(data)
