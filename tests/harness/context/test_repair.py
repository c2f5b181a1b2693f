"""Repair: a damaged history becomes one that the provider accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.context.repair import INTERRUPTED, NOTHING, repair
from harness.messages.message import Message, Text, Thinking, ToolCall, ToolResult
from workspaces.storage.records import JsonObject

USER = Message("user", (Text("hello"),))
CALL = Message(
    "assistant",
    (
        Thinking({"type": "thinking", "thinking": "hm", "signature": "S"}),
        ToolCall("t1", "read", {}),
    ),
)
RESULT = Message("user", (ToolResult("t1", "text"),))
ANSWER = Message("assistant", (Text("done"),))
THINKING = Thinking({"type": "thinking", "thinking": "hm", "signature": "S"})
UNSIGNED = Thinking({"type": "thinking", "thinking": "hm"})
UNKNOWN = Thinking({"type": "telepathy"})
USE = Thinking({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})
FOUND = Thinking({"type": "web_search_tool_result", "tool_use_id": "s1", "content": []})


def said(text: str) -> Message:
    return Message("user", (Text(text),))


def called(call_id: str, name: str, arguments: JsonObject | None = None) -> Message:
    return Message("assistant", (ToolCall(call_id, name, arguments or {}),))


def answered(call_id: str, text: str) -> Message:
    return Message("user", (ToolResult(call_id, text),))


def renamed(message: Message) -> Message:
    """With the id that the second call of the name t1 gets."""
    parts = (
        replace(part, id="t1-2")
        if isinstance(part, ToolCall)
        else replace(part, call_id="t1-2")
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    return Message(message.role, tuple(parts))


def test_repair_returns_an_intact_history_unchanged() -> None:
    history = (USER, CALL, RESULT, Message("assistant", (USE, FOUND, *ANSWER.parts)), USER)
    assert repair(history) is history


@pytest.mark.parametrize(
    ("damaged", "repaired"),
    [
        ((USER, CALL), (USER, CALL, Message("user", (ToolResult("t1", INTERRUPTED, True),)))),
        (
            (USER, CALL, USER),
            (USER, CALL, Message("user", (ToolResult("t1", INTERRUPTED, True), Text("hello")))),
        ),
        ((USER, RESULT, ANSWER), (USER, ANSWER)),
        ((RESULT, USER), (USER,)),
        ((ANSWER, USER), (USER,)),
        ((USER, USER), (Message("user", (Text("hello"), Text("hello"))),)),
        (
            (USER, Message("assistant", (Text("  "),)), USER, ANSWER),
            (Message("user", USER.parts * 2), ANSWER),
        ),
        ((Message("user", ()),), ()),
        ((), ()),
        (
            (USER, ANSWER, RESULT, ANSWER, USER),
            (USER, Message("assistant", ANSWER.parts * 2), USER),
        ),
        ((USER, CALL, RESULT, CALL, RESULT), (USER, CALL, RESULT, renamed(CALL), renamed(RESULT))),
        ((USER, CALL, RESULT, RESULT), (USER, CALL, RESULT)),
        ((USER, CALL, CALL, RESULT), (USER, CALL, RESULT)),
        (
            (USER, Message("assistant", (THINKING, *ANSWER.parts, THINKING)), USER),
            (USER, Message("assistant", (THINKING, *ANSWER.parts)), USER),
        ),
        (
            (USER, Message("assistant", (THINKING,)), USER),
            (Message("user", USER.parts * 2),),
        ),
        ((Message("user", (*USER.parts, THINKING, *CALL.parts)), ANSWER), (USER, ANSWER)),
        (
            (USER, Message("assistant", (*RESULT.parts, *ANSWER.parts))),
            (USER, ANSWER),
        ),
        ((USER, Message("assistant", (USE, *ANSWER.parts))), (USER, ANSWER)),
        ((USER, Message("assistant", (FOUND, *ANSWER.parts))), (USER, ANSWER)),
        ((USER, Message("assistant", (UNSIGNED, *ANSWER.parts))), (USER, ANSWER)),
        ((USER, Message("assistant", (UNKNOWN, *ANSWER.parts))), (USER, ANSWER)),
        (
            (USER, called("a:1", "my tool"), answered("a:1", "")),
            (USER, called("a_1", "my_tool"), answered("a_1", "")),
        ),
        (
            (USER, CALL, Message("user", (ToolResult("t1", "", is_error=True),))),
            (USER, CALL, Message("user", (ToolResult("t1", NOTHING, is_error=True),))),
        ),
        ((said("a\ud83d\ude00b"),), (said("a😀b"),)),
        ((said("\udead"),), (said("\ufffd"),)),
        (
            (USER, called("t1", "read", {"\ud800": ["\udfff", 1]}), answered("t1", "\ud800")),
            (USER, called("t1", "read", {"\ufffd": ["\ufffd", 1]}), answered("t1", "\ufffd")),
        ),
    ],
)
def test_repair_makes_a_damaged_history_acceptable(
    damaged: tuple[Message, ...], repaired: tuple[Message, ...]
) -> None:
    assert repair(damaged) == repaired
