"""The text that a pass reads: only what was said, only what is new, and only the newest of it."""

from __future__ import annotations

from collections.abc import Callable

from harness import Harness
from harness.learning.new_text import CHARACTERS_MAX, NewText, lines_of, new_text
from harness.messages.message import ToolCall
from harness.messages.model_request import ModelFailure
from harness.models.scripted import ScriptedModel
from tests.harness.learning.saying import said

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


def text_of(harness: Harness, key: str = "c1", after: int = 0) -> NewText:
    transcript = harness.conversations.transcript(harness.conversation(key))
    return new_text(transcript, after, lambda _: False)


def test_lines_are_counted_in_code_points_with_their_prefixes() -> None:
    text = lines_of([("user", "grüße 🎈"), ("assistant", "ja"), ("user", "  ")])
    assert text == "user: grüße 🎈\nassistant: ja"
    assert len(text) == 27


def test_only_texts_are_read(scripted: Scripted) -> None:
    harness, _ = scripted([ToolCall("w", "read", {"path": "MEMORY.md"})], "done")
    said(harness, "look at it")
    assert text_of(harness) == NewText("user: look at it\nassistant: done", 4)


def test_only_what_is_new_is_read(scripted: Scripted) -> None:
    harness, _ = scripted("one", "two")
    said(harness, "first")
    said(harness, "second")
    assert text_of(harness, after=2) == NewText("user: second\nassistant: two", 4)
    assert text_of(harness, after=4) == NewText("", 4)


def test_of_a_long_conversation_the_newest_characters_are_read(scripted: Scripted) -> None:
    harness, _ = scripted(*("short" for _ in range(30)))
    for number in range(30):
        said(harness, f"{number:02} " + "x" * 600)
    found = text_of(harness)
    assert len(found.text) == CHARACTERS_MAX
    assert found.text.endswith("assistant: short")
    assert "user: 29" in found.text and "user: 00" not in found.text
    assert found.until == 60


def test_12_001_characters_lose_the_oldest_one() -> None:
    whole = lines_of([("user", "a" + "b" * (CHARACTERS_MAX - len("user: ")))])
    assert len(whole) == CHARACTERS_MAX
    assert whole.startswith("ser: a")


def test_entries_that_a_failed_run_left_are_not_read(scripted: Scripted) -> None:
    harness, _ = scripted("fine", ModelFailure("broken", "no", ""), "good")
    harness.agents.patch("assistant", {"config": {"activeMemory": True}})
    for prompt in ("one", "two"):
        harness.finish_run(harness.runs.start("assistant", prompt).id)
    harness.run("three", is_shared=True)
    assert (
        text_of(harness, "shared").text
        == "user: one\nassistant: fine\nuser: three\nassistant: good"
    )
