from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.context.repair import INTERRUPTED, repair
from harness.message import Message, Part, Text, Thinking, ToolCall, ToolResult

USER = Message("user", (Text("hello"),))
CALL = Message(
    "assistant", (Thinking({"type": "thinking", "signature": "S"}), ToolCall("t1", "read", {}))
)
RESULT = Message("user", (ToolResult("t1", "text"),))
ANSWER = Message("assistant", (Text("done"),))


def test_an_intact_history_passes_unchanged() -> None:
    history = (USER, CALL, RESULT, ANSWER, USER)
    assert repair(history) == history


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
    ],
)
def test_a_damaged_history_is_repaired(
    damaged: tuple[Message, ...], repaired: tuple[Message, ...]
) -> None:
    assert repair(damaged) == repaired


_ids = st.sampled_from(["t1", "t2", "t3"])
_parts = st.one_of(
    st.builds(Text, st.sampled_from(["", " ", "text"])),
    st.builds(ToolCall, _ids, st.just("read"), st.just({})),
    st.builds(ToolResult, _ids, st.just("result")),
)


def _message(role: str) -> st.SearchStrategy[Message]:
    allowed = (Text, ToolCall) if role == "assistant" else (Text, ToolResult)
    parts = st.lists(_parts.filter(lambda part: isinstance(part, allowed)), max_size=3)
    return parts.map(lambda found: Message(role, tuple(_unique(found))))  # type: ignore[arg-type]


def _unique(parts: list[Part]) -> list[Part]:
    calls: set[str] = set()
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall) and part.id in calls:
            continue
        if isinstance(part, ToolCall):
            calls.add(part.id)
        kept.append(part)
    return kept


@given(st.lists(st.one_of(_message("user"), _message("assistant")), max_size=8))
def test_whatever_was_stored_the_request_keeps_the_providers_rules(history: list[Message]) -> None:
    messages = repair(tuple(history))
    assert [message.role for message in messages] == [
        "user" if number % 2 == 0 else "assistant" for number in range(len(messages))
    ]
    for before, message in zip((None, *messages), messages, strict=False):
        assert message.parts
        assert all(part.text.strip() for part in message.parts if isinstance(part, Text))
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        asked = list(dict.fromkeys(call.id for call in before.tool_calls)) if before else []
        assert results[: len(asked)] == asked
        assert len(results) == len(asked)
    assert repair(messages) == messages
