"""The length of what is unread: kept in memory, and read again when another process came between."""

from __future__ import annotations

from collections.abc import Callable

from harness import Harness
from harness.learning.learning_jobs import LEARN
from harness.learning.new_text import CHARACTERS_MIN
from harness.learning.unread import UnreadText
from harness.messages.message import Message, Text
from harness.models.scripted import ScriptedModel
from harness.transcripts.transcript import Entry
from tests.harness.learning.saying import LONG, said, saves
from workspaces.ids import TurnId
from workspaces.timestamp import Stamp

Scripted = Callable[..., tuple[Harness, ScriptedModel]]


def entry(number: int, length: int) -> Entry:
    message = Message("user", (Text("x" * (length - len("user: "))),))
    return Entry(number, Stamp("2026-01-01T00:00:00.000000Z"), TurnId("t"), message)


def unasked() -> int:
    raise AssertionError("the store is not asked")


def test_turns_add_up_without_asking_the_store() -> None:
    unread = UnreadText()
    assert not unread.is_enough("c", 0, [entry(1, 100)], unasked)
    assert not unread.is_enough("c", 0, [entry(2, 98)], unasked)
    assert unread.is_enough("c", 0, [entry(3, 7)], unasked)
    assert unread.is_enough("c", 0, [entry(4, 7)], unasked)
    assert unread.is_enough("d", 0, [entry(9, CHARACTERS_MIN)], unasked)


def test_the_store_is_asked_after_a_gap_and_after_a_pass() -> None:
    unread = UnreadText()
    unread.is_enough("c", 0, [entry(1, 100)], unasked)
    assert not unread.is_enough("c", 0, [entry(5, 100)], lambda: 150)
    assert unread.is_enough("c", 0, [entry(6, 49)], unasked)
    unread.forget("c")
    assert not unread.is_enough("c", 0, [entry(7, 49)], lambda: 49)


def test_a_short_turn_after_a_pass_leaves_no_job(scripted: Scripted) -> None:
    harness, _ = scripted("a", saves(), "b", "c")
    conversation = said(harness)
    harness.learn(conversation)
    harness.jobs.remove(f"{LEARN}:{conversation.id}")
    said(harness, "thanks")
    assert harness.jobs.list() == []
    said(harness, LONG)
    assert [one.job.kind for one in harness.jobs.list()] == [LEARN]
