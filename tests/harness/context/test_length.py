"""The length of a request: characters, estimated tokens, and its digest."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

import pytest

from harness.context.length import Length, characters, length_of, measured
from harness.context.receipt import digest
from harness.messages.message import Message, Text, ToolCall, ToolResult, user
from harness.messages.model_request import Breakpoints, ModelRequest, ToolSpec

TOOL = ToolSpec("read", "Reads a file.", {"type": "object"})
MESSAGES = (
    user('say "😀"\n'),
    Message("assistant", (Text("ü"), ToolCall("t1", "read", {"path": "ä.md"}))),
    Message("user", (ToolResult("t1", "\u2028", is_error=True),)),
)


def test_the_length_in_characters_is_that_of_the_json_of_system_and_messages() -> None:
    request = ModelRequest(("You are brief.", "😀"), MESSAGES, (TOOL,))
    shown = request.as_json()
    text = json.dumps(
        {"system": shown["system"], "messages": shown["messages"]},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    assert characters(request.system, request.messages) == len(text)
    for marks in ((), (0,), (0, 1)):
        marked = replace(request, breakpoints=Breakpoints(marks))
        length = measured(marked, None)
        assert length.characters == len(text)
        assert measured(marked, length, is_same=True) == length


@pytest.mark.parametrize("text", ["", "a", "😀", "\ud83d", "\n", "\x00", '"', "é"])
def test_each_character_counts_with_the_length_of_its_json_form(text: str) -> None:
    added = characters((), (user(text * 7),)) - characters((), (user(""),))
    assert added == 7 * (len(json.dumps(text, ensure_ascii=False)) - 2)


def test_tokens_are_estimated_from_the_counted_tokens_of_the_previous_request() -> None:
    request = ModelRequest(("s" * 1_000,), (user("x" * 3_000),), (TOOL,))
    first = measured(request, None)
    assert first.tokens == round(first.all_characters / 4)
    known = first.counted(2 * first.tokens)
    assert known.tokens == 2 * first.tokens
    again = measured(request, known)
    assert again.tokens == known.tokens
    longer = ModelRequest(request.system, (user("x" * 30_000),), (TOOL,))
    assert measured(longer, known).tokens == pytest.approx(
        known.tokens * measured(longer, None).all_characters / first.all_characters, abs=1
    )


def test_a_length_without_counted_tokens_keeps_its_estimate() -> None:
    length = Length(10, 20, 30)
    assert length.counted(0) == length
    assert length_of(length.as_json()) == length
    assert measured(ModelRequest((), (), ()), Length(0, 0, 0)).tokens == 7


@pytest.mark.parametrize("count", [0, 1, 3])
def test_tools_count_with_the_length_of_their_json_and_the_digest_covers_the_whole_request(
    count: int,
) -> None:
    tools = tuple(ToolSpec(f"t{n}", "Ärger, 猫", {"default": [True, 1, "é"]}) for n in range(count))
    request = ModelRequest(
        ("Sé brief.", "b"), (user("ü"), Message("assistant", (Text("ja"),))), tools
    )
    plain = json.dumps(request.as_json()["tools"], ensure_ascii=False, separators=(",", ":"))
    assert measured(request, None).tools == len(plain)
    whole = json.dumps(request.as_json(), ensure_ascii=True, separators=(",", ":"))
    assert digest(request) == sha256(whole.encode()).hexdigest()
