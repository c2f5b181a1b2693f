"""Any history made into one that a provider accepts; intact histories pass unchanged.

A crash, a cancelled turn or an import can leave a tool call without its result, a result without its
call, two messages of one role in a row. What providers ask for: the first message is a user's, roles
alternate, the results of an assistant's calls come first in the very next message, no text is empty,
no message ends in thinking (an answer that was cut does).
"""

from __future__ import annotations

from harness.message import Message, Part, Text, Thinking, ToolCall, ToolResult

INTERRUPTED = "interrupted: it is not known whether this tool ran, or how far"


def repair(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    repaired: list[Message] = []
    open_calls: tuple[ToolCall, ...] = ()
    for message in _joined(messages):
        if message.role == "assistant":
            if not repaired:
                continue  # nothing that came before the first user message can be replayed
            repaired.append(message)
            open_calls = message.tool_calls
            continue
        parts = _answered(message.parts, open_calls)
        open_calls = ()
        if parts:
            repaired.append(Message("user", parts))
    if open_calls:
        repaired.append(Message("user", _answered((), open_calls)))
    return tuple(repaired)


def _joined(messages: tuple[Message, ...]) -> list[Message]:
    """Without empty texts, trailing thinking and empty messages; neighbours of one role as one message."""
    joined: list[Message] = []
    for message in messages:
        parts = _replayable(message)
        if not parts:
            continue
        if joined and joined[-1].role == message.role:
            joined[-1] = Message(message.role, _each_call_once(joined[-1].parts + parts))
        else:
            joined.append(Message(message.role, parts))
    return joined


def _replayable(message: Message) -> tuple[Part, ...]:
    parts = [part for part in message.parts if not _is_empty(part)]
    while parts and isinstance(parts[-1], Thinking):
        parts.pop()
    return tuple(parts)


def _each_call_once(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    seen: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            if part.id in seen:
                continue
            seen.add(part.id)
        kept.append(part)
    return tuple(kept)


def _answered(parts: tuple[Part, ...], calls: tuple[ToolCall, ...]) -> tuple[Part, ...]:
    """One result for every call, in their order, then the rest; results of no call are left out."""
    given = {part.call_id: part for part in parts if isinstance(part, ToolResult)}
    results = [
        given.get(call.id, ToolResult(call.id, INTERRUPTED, is_error=True)) for call in calls
    ]
    rest = [part for part in parts if not isinstance(part, ToolResult)]
    return (*results, *rest)


def _is_empty(part: Part) -> bool:
    return isinstance(part, Text) and not part.text.strip()
