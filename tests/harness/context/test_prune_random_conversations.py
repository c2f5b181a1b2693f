"""Pruning in random conversations: tool traffic leaves only with a new snapshot."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

from harness.context.assemble import Numbered
from harness.context.delta import Delta
from harness.context.history_message import HistoryMessage
from harness.context.prune import Pruning, leaving, prune
from harness.context.snapshot import (
    STEP_CHARACTERS_MIN,
    Moment,
    ShownState,
    Snapshot,
    SnapshotKey,
    after,
    decide,
)
from harness.messages.message import Message, Text, ToolCall, ToolResult, part_as_json, user
from harness.runtime.templates import render
from workspaces.ids import TurnId

COUNT = 1_000 if os.environ.get("SOAK") else 100
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass
class Talk:
    """With a request before each answer, and now and then a reason for another snapshot."""

    chance: random.Random
    pruning: Pruning
    said: list[HistoryMessage] = field(default_factory=list[HistoryMessage])
    held: ShownState | None = None
    shown: tuple[Numbered, ...] = ()
    news: Snapshot | Delta | None = None
    resets: int = 0

    def ask(self, turn: TurnId) -> None:
        since = self.held.snapshot.traffic_from if self.held else 0
        found = leaving(self.said, self.pruning, render, running=turn, traffic_from=since)
        self.resets += self.chance.random() < 0.03
        terms = SnapshotKey("", "", "", "", "", str(self.resets))
        now = Moment(NOW, len(self.said), terms, (), leaving=found)
        self.news = decide(self.held, now, render)
        self.held = after(self.held, self.news, NOW)
        since = self.held.snapshot.traffic_from
        self.shown = prune(self.said, self.pruning, render, running=turn, traffic_from=since)

    def say(self, turn: TurnId, message: Message) -> None:
        self.said.append(HistoryMessage(len(self.said) + 1, turn, message))

    def text(self) -> str:
        return "x" * self.chance.choice((10, 399, 400, 401, 9_000, 25_000))


def go_on(talk: Talk, turn: TurnId) -> None:
    call = ToolCall(f"{turn}-{len(talk.said)}", "write", {"content": talk.text()})
    talk.say(turn, Message("assistant", (Text("remark"), call)))
    talk.say(turn, Message("user", (ToolResult(call.id, talk.text()),)))


def of_turns(talk: Talk, turns: list[TurnId]) -> list[Numbered]:
    numbers = {one.number for one in talk.said if one.turn in turns}
    return [one for one in talk.shown if one[0] in numbers]


def calls_of(talk: Talk, turn: TurnId) -> tuple[int, int]:
    """How many a turn has made, and how many of them are shown."""
    made = sum(len(one.message.tool_calls) for one in talk.said if one.turn == turn)
    return made, sum(len(message.tool_calls) for _, message in of_turns(talk, [turn]))


def test_tool_traffic_leaves_only_with_a_snapshot_and_within_its_configured_turns() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    reasons: set[str] = set()
    for _ in range(COUNT):
        talk = Talk(chance, Pruning(turns=chance.randrange(6)))
        ended: list[TurnId] = []
        before: list[Numbered] = []
        for number in range(chance.randrange(2, 25)):
            turn = TurnId(f"turn_{number}")
            talk.say(turn, user("question"))
            talk.ask(turn)
            for _ in range(chance.randrange(4)):
                check(talk, ended, before)
                before = of_turns(talk, ended)
                reasons |= {talk.news.reason} if isinstance(talk.news, Snapshot) else set()
                go_on(talk, turn)
                talk.ask(turn)
            check(talk, ended, before)
            talk.say(turn, Message("assistant", (Text("answer"),)))
            ended.append(turn)
            before = of_turns(talk, ended[:-1])
    assert {"first", "configuration", "traffic"} <= reasons


def check(talk: Talk, ended: list[TurnId], before: list[Numbered]) -> None:
    if not isinstance(talk.news, Snapshot):
        assert of_turns(talk, ended)[: len(before)] == before
    kept = max(0, len(ended) - talk.pruning.turns)
    for turn in ended[kept:]:
        made, shown = calls_of(talk, turn)
        assert made == shown, "it left too early"
    late = [part for _, message in of_turns(talk, ended[:kept]) for part in message.parts]
    traffic = (part for part in late if isinstance(part, ToolCall | ToolResult))
    characters = sum(len(COMPACT.encode(part_as_json(part))) for part in traffic)
    assert characters < STEP_CHARACTERS_MIN, "it stays too long"
