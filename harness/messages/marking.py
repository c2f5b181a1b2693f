"""Put marks in the place of forbidden texts in what is said: in events, replies and tool results.

It happens before anything is stored, so that what is stored, shown later and sent to a model is the same. A
text is found within one part of a message. A tool call whose input held a forbidden text must not run with
something else in its place: its input becomes one field, `FORBIDDEN_INPUT`, and the call fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol, cast

from harness.messages.client_tool import ClientTool
from harness.messages.event import (
    Approval,
    Event,
    EventItem,
    SystemSaid,
    TextPart,
    ToolAnswer,
    UserSaid,
)
from harness.messages.message import (
    FORBIDDEN_INPUT,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from workspaces.forgetting.streamed_text import StreamedText

MarkText = Callable[[str], str]
"""Returns a text with a mark in the place of each forbidden one."""


class TextMarks(Protocol):
    """What is forbidden in what is said."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was forbidden a moment ago. No store is asked."""
        ...

    def marked(self, text: str) -> str:
        """Return the text with a mark in the place of each forbidden one."""
        ...

    def stream(self) -> StreamedText | None:
        """Return a marking for a message that arrives in pieces. None: nothing is forbidden."""
        ...


class NoMarks:
    """Marks for where nothing is forbidden."""

    is_empty = True

    def marked(self, text: str) -> str:
        return text

    def stream(self) -> StreamedText | None:
        return None


NO_MARKS = NoMarks()

WITHHELD = "(withheld)"
"""What is left of a message of which nothing may be stored."""


def unmarked(text: str) -> str:
    """Return the text as it is: nothing is forbidden."""
    return text


def marked_event(event: Event, mark: MarkText) -> Event:
    """Return an event with marks. An event without a forbidden text is returned as it is."""
    items = tuple(_marked_item(item, mark) for item in event.items)
    system = None if event.system is None else mark(event.system)
    tools = tuple(_marked_tool(tool, mark) for tool in event.tools)
    if items == event.items and system == event.system and tools == event.tools:
        return event
    return replace(event, items=items, system=system, tools=tools)


def marked_message(message: Message, mark: MarkText) -> Message:
    """Return a message with marks."""
    parts = tuple(kept for part in message.parts if (kept := _marked_part(part, mark)) is not None)
    return replace(message, parts=parts or (Text(WITHHELD),))


def _marked_item(item: EventItem, mark: MarkText) -> EventItem:
    match item:
        case UserSaid() if isinstance(item.content, str):
            return item.model_copy(update={"content": mark(item.content)})
        case UserSaid():
            parts = [TextPart(text=mark(part.text)) for part in item.parts]
            return item.model_copy(update={"content": parts})
        case SystemSaid() | ToolAnswer():
            return item.model_copy(update={"content": mark(item.content)})
        case Approval():
            reason = None if item.reason is None else mark(item.reason)
            return item if reason == item.reason else item.model_copy(update={"reason": reason})


def _marked_tool(tool: ClientTool, mark: MarkText) -> ClientTool:
    """Return a client's tool with marks in its description and its schema. Its name is one word."""
    texts = "\n".join((tool.description, *_texts_in(tool.input_schema)))
    if mark(texts) == texts:  # nearly always: one search for all
        return tool
    schema = _marked_json(tool.input_schema, mark)
    return tool.model_copy(update={"description": mark(tool.description), "input_schema": schema})


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in cast("list[Any]", value):
            yield from _texts_in(one)
    elif isinstance(value, dict):
        for name, one in cast("dict[str, Any]", value).items():
            yield name
            yield from _texts_in(one)


def _marked_part(part: Part, mark: MarkText) -> Part | None:
    """Return a part with marks. Return None for thinking with a forbidden text: it is signed, so it can be
    stored as it came or not at all."""
    match part:
        case Text(text):
            return Text(mark(text))
        case ToolResult():
            return replace(part, text=mark(part.text))
        case ToolCall():
            marked = _marked_json(part.input, mark)
            if marked == part.input:
                return part
            return replace(part, input={FORBIDDEN_INPUT: json.dumps(marked, ensure_ascii=False)})
        case Thinking(block):
            return part if _marked_json(block, mark) == block else None


def _marked_json(value: Any, mark: MarkText) -> Any:
    if isinstance(value, str):
        return mark(value)
    if isinstance(value, list):
        return [_marked_json(one, mark) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {mark(name): _marked_json(one, mark) for name, one in fields.items()}
    return value
