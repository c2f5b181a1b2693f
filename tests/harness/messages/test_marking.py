from __future__ import annotations

from harness.messages.client_tool import ClientTool
from harness.messages.event import (
    Approval,
    Event,
    SystemSaid,
    TextPart,
    ToolAnswer,
    UserSaid,
    event_of,
)
from harness.messages.marking import WITHHELD, marked_event, marked_message
from harness.messages.message import FORBIDDEN_INPUT, Message, Text, Thinking, ToolCall, ToolResult


def mark(text: str) -> str:
    return text.replace("secret", "[f]")


def test_every_text_of_an_event_is_marked() -> None:
    parts = [TextPart(text="a secret"), TextPart(text="b")]
    items = (UserSaid(content="my secret"), UserSaid(content=parts), SystemSaid(content="secret"))
    event = Event("e1", "c1", items, system="secret")
    marked = marked_event(event, mark)
    assert "secret" not in str(marked.as_json())
    assert marked.message.text == "my [f]\n\na [f]\n\nb"
    answers = (
        ToolAnswer(call_id="x", content="secret"),
        Approval(call_id="y", is_allowed=False, reason="secret"),
    )
    assert "secret" not in str(marked_event(Event("e2", "c1", answers), mark).as_json())


def test_what_a_clients_tool_says_of_itself_is_marked() -> None:
    plain = ClientTool(name="plain", description="tea", input_schema={"type": "object"})
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "a secret"]}}}
    telling = ClientTool(name="telling", description="my secret", input_schema=schema)
    event = Event("e1", "c1", (UserSaid(content="tea"),), tools=(plain, telling))
    first, second = marked_event(event, mark).tools
    assert first is plain and second.name == "telling"
    assert "secret" not in str(second.as_json()) and second.description == "my [f]"
    assert event_of(marked_event(event, mark).as_json()).tools == (first, second)


def test_an_event_without_a_forbidden_text_stays_as_it_is() -> None:
    event = Event("e1", "c1", (UserSaid(content=[TextPart(text="tea")]),))
    assert marked_event(event, mark) is event


def test_a_reply_is_marked_and_its_call_with_a_forbidden_input_cannot_run() -> None:
    signed = Thinking({"type": "thinking", "thinking": "the secret", "signature": "s"})
    call = ToolCall("1", "write", {"path": "a", "content": ["secret"]})
    other = ToolCall("2", "write", {"path": "a"})
    message = Message("assistant", (signed, Text("a secret"), call, other))
    text, marked, kept = marked_message(message, mark).parts
    assert text == Text("a [f]") and kept is other
    assert isinstance(marked, ToolCall) and list(marked.input) == [FORBIDDEN_INPUT]
    assert "[f]" in marked.input[FORBIDDEN_INPUT] and "secret" not in str(marked)
    assert marked_message(Message("assistant", (signed,)), mark).text == WITHHELD
    result = Message("user", (ToolResult("1", "secret"),))
    assert "secret" not in str(marked_message(result, mark))
