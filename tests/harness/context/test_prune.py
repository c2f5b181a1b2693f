"""Pruning: which old tool traffic a request leaves out or shortens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pytest

from harness.context.assemble import Numbered
from harness.context.history_message import HistoryMessage
from harness.context.prune import (
    HARD_CHARACTERS_MAX,
    RESULT_CHARACTERS_MAX,
    Pruning,
    leaving,
    prune,
    shortened,
)
from harness.context.snapshot import NOTHING_LEAVES, Leaving
from harness.messages.message import (
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    part_as_json,
    user,
)
from harness.runtime.templates import render
from workspaces.ids import TurnId

LONG = "".join(f"{number:04} " for number in range(1_000))
USUAL = Pruning()
THINKING = Thinking({"type": "thinking", "thinking": "hm", "signature": "S"})


class Talk:
    """Turns, one after the other."""

    def __init__(self) -> None:
        self.said: list[HistoryMessage] = []
        self.turns = 0

    def turn(self, *results: str, answer: str | None = "answer", said: str = "question") -> TurnId:
        self.turns += 1
        turn = TurnId(f"turn_{self.turns}")
        self.add(turn, user(said))
        for number, result in enumerate(results):
            call_id = f"t{self.turns}-{number}"
            call = ToolCall(call_id, "bash", {"command": "ls"})
            self.add(turn, Message("assistant", (THINKING, Text("remark"), call)))
            self.add(turn, Message("user", (ToolResult(call_id, result),)))
        if answer is not None:
            self.add(turn, Message("assistant", (THINKING, Text(answer))))
        return turn

    def add(self, turn: TurnId, message: Message) -> None:
        self.said.append(HistoryMessage(len(self.said) + 1, turn, message))

    def shown(
        self,
        pruning: Pruning | None = USUAL,
        running: TurnId | None = None,
        traffic_from: int = 0,
    ) -> tuple[Numbered, ...]:
        return prune(self.said, pruning, render, running=running, traffic_from=traffic_from)

    def leaving(
        self, pruning: Pruning | None = USUAL, traffic_from: int = 0, running: TurnId | None = None
    ) -> Leaving:
        return leaving(self.said, pruning, render, running=running, traffic_from=traffic_from)


def parts(shown: Iterable[Numbered]) -> list[Part]:
    return [part for _, message in shown for part in message.parts]


def traffic(shown: Iterable[Numbered]) -> list[Part]:
    return [part for part in parts(shown) if isinstance(part, ToolCall | ToolResult)]


def results(shown: Iterable[Numbered]) -> list[ToolResult]:
    return [part for part in parts(shown) if isinstance(part, ToolResult)]


def calls(shown: Iterable[Numbered]) -> list[str]:
    return [part.id for part in parts(shown) if isinstance(part, ToolCall)]


def as_said(said: Sequence[HistoryMessage]) -> tuple[Numbered, ...]:
    return tuple((one.number, one.message) for one in said)


def test_pruning_leaves_the_running_turn_unchanged() -> None:
    talk = Talk()
    turn = talk.turn(LONG, LONG)
    assert talk.shown(running=turn) == as_said(talk.said)


def test_pruning_removes_thinking_and_shortens_results_of_an_ended_turn() -> None:
    talk = Talk()
    talk.turn(LONG, "short")
    shown = talk.shown()
    assert not any(isinstance(part, Thinking) for part in parts(shown))
    long, short = results(shown)
    assert len(long.text) == RESULT_CHARACTERS_MAX
    assert long.text.startswith("0000 0001 ")
    assert long.text.endswith("0998 0999 ")
    assert 'read_result with id "t1-0" shows the whole' in long.text
    assert short.text == "short"
    assert [part.text for part in parts(shown) if isinstance(part, Text)] == [
        "question",
        "remark",
        "remark",
        "answer",
    ]


def test_pruning_keeps_the_inputs_of_tool_calls() -> None:
    talk = Talk()
    turn = TurnId("turn_1")
    call = ToolCall("t1", "write", {"path": "a.md", "content": LONG * 20})
    for message in (
        user("write"),
        Message("assistant", (call,)),
        Message("user", (ToolResult("t1", "ok"),)),
    ):
        talk.add(turn, message)
    assert call in parts(talk.shown())


def test_pruning_that_is_turned_off_shows_the_whole_transcript() -> None:
    talk = Talk()
    for _ in range(20):
        talk.turn(LONG, "x" * 40_000)
    assert talk.shown(None) == as_said(talk.said)
    assert talk.shown(None, traffic_from=99) == as_said(talk.said)
    assert talk.leaving(None) == NOTHING_LEAVES


def test_pruning_shows_an_ended_turn_the_same_in_every_later_request() -> None:
    talk = Talk()
    talk.turn(LONG)
    before = talk.shown()
    for _ in range(30):
        running = talk.turn(LONG)
        now = talk.shown(running=running)
        assert now[: len(before)] == before
        before = talk.shown()


@pytest.mark.parametrize("turns", [0, 1, 3, 10])
def test_tool_traffic_leaves_after_the_configured_number_of_turns(turns: int) -> None:
    talk = Talk()
    for number in range(1, 15):
        running = talk.turn(LONG)
        for ended, at in ((number, None), (number - 1, running)):
            since = talk.leaving(Pruning(turns), running=at).traffic_from
            kept = calls(talk.shown(traffic_from=since))
            assert kept == [f"t{n}-0" for n in range(max(1, ended - turns + 1), number + 1)]


def test_texts_stay_when_the_tool_traffic_beside_them_has_left() -> None:
    talk = Talk()
    for _ in range(3):
        talk.turn(LONG)
    shown = talk.shown(traffic_from=len(talk.said) + 1)
    assert traffic(shown) == []
    texts = [part.text for part in parts(shown) if isinstance(part, Text)]
    assert texts == ["question", "remark", "answer"] * 3


def test_the_leaving_traffic_is_counted_in_its_shortened_form_and_once() -> None:
    talk = Talk()
    for number in range(30):
        talk.turn(*[LONG] * (number % 3), "short")
    compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    since = 0
    for turns in (25, 25, 12, 3, 0):
        found = talk.leaving(Pruning(turns), since)
        before, after = talk.shown(traffic_from=since), talk.shown(traffic_from=found.traffic_from)
        gone = traffic(before)[: len(traffic(before)) - len(traffic(after))]
        assert traffic(before)[len(gone) :] == traffic(after)
        assert found.characters == sum(len(compact.encode(part_as_json(one))) for one in gone)
        since = found.traffic_from
    assert traffic(talk.shown(traffic_from=since)) == []


@pytest.mark.parametrize("since", range(0, 20, 3))
def test_a_tool_call_and_its_result_are_pruned_together(since: int) -> None:
    """A number in the middle of a turn, which no snapshot has, shows all of the turn or none."""
    talk = Talk()
    for _ in range(4):
        talk.turn(LONG, LONG)
    shown = talk.shown(traffic_from=since)
    assert [one.call_id for one in results(shown)] == calls(shown)


def test_pruning_twice_changes_nothing() -> None:
    talk = Talk()
    for _ in range(30):
        talk.turn(LONG, "y" * 401, "z" * 400)
    for pruning, since in ((Pruning(), 0), (Pruning(), 70), (Pruning(prune_all=True), 0)):
        once = talk.shown(pruning, traffic_from=since)
        turns = {one.number: one.turn for one in talk.said}
        again = [HistoryMessage(number, turns[number], message) for number, message in once]
        assert prune(again, pruning, render, running=None, traffic_from=since) == once


def test_a_shortened_result_does_not_name_a_call_id_that_read_result_would_refuse() -> None:
    talk = Talk()
    turn, call_id = TurnId("turn_1"), "t" * 500
    talk.add(turn, user("hello"))
    talk.add(turn, Message("assistant", (ToolCall(call_id, "bash", {}),)))
    talk.add(turn, Message("user", (ToolResult(call_id, LONG),)))
    (result,) = results(talk.shown())
    assert len(result.text) == RESULT_CHARACTERS_MAX
    assert "read_result" not in result.text


def test_hard_pruning_keeps_the_running_turns_traffic_and_shortens_all_texts() -> None:
    talk = Talk()
    talk.turn(LONG, said=LONG, answer=LONG)
    running = talk.turn(LONG, LONG, said=LONG * 2, answer=None)
    shown = talk.shown(Pruning(prune_all=True), running)
    assert calls(shown) == ["t2-0", "t2-1"]
    assert all(len(one.text) == HARD_CHARACTERS_MAX for one in results(shown))
    texts = [part.text for part in parts(shown) if isinstance(part, Text)]
    assert [len(text) for text in texts] == [
        HARD_CHARACTERS_MAX,
        6,
        HARD_CHARACTERS_MAX,
        2 * len(LONG),
        6,
        6,
    ]
    assert THINKING in parts(shown)


@pytest.mark.parametrize("length", [399, 400, 401, 402, 500, 10_000, 99_999])
@pytest.mark.parametrize("letter", ["x", "😀", "\ud800", "\n"])
def test_a_shortened_text_fills_its_limit_with_head_and_tail(length: int, letter: str) -> None:
    def left_out(count: int) -> str:
        return f"({count:,} left out)"

    text = letter * length
    short = shortened(text, 400, left_out)
    assert (short == text) == (length <= 400)
    assert 397 <= len(short) <= 400 or length < 400
    if length > 400:
        head, _, tail = short.partition("(")
        count, _, tail = tail.partition(" left out)")
        assert len(head) + len(tail) + int(count.replace(",", "")) == length
        assert 0 <= len(head) - len(tail) <= 1
