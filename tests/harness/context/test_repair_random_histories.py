"""Random damaged histories through pruning, repair and assembly: every request is valid."""

from __future__ import annotations

import os
import random

from harness.context.history_message import HistoryMessage
from harness.context.prune import Pruning, leaving, prune
from harness.context.repair import repair, sound
from harness.context.summary_plan import Cover, SummaryState, cover, input_of
from harness.messages.message import Message, Text, user
from harness.messages.model_request import ModelRequest
from harness.runtime.templates import render
from tests.harness.context.histories import damaged, intact, refused
from workspaces.ids import TurnId

COUNT = 100_000 if os.environ.get("SOAK") else 10_000
PRUNINGS = (None, Pruning(), Pruning(turns=0), Pruning(turns=2), Pruning(prune_all=True))


def sent(
    said: list[HistoryMessage], pruning: Pruning | None, running: TurnId | None
) -> tuple[Message, ...]:
    since = leaving(said, pruning, render, running=running, traffic_from=0).traffic_from
    shown = prune(said, pruning, render, running=running, traffic_from=since)
    return repair(tuple(message for _, message in shown))


def left(chance: random.Random, said: list[HistoryMessage]) -> list[HistoryMessage]:
    """What a compaction leaves of a history, in every other one."""
    state = SummaryState(said, 1_000, 0, lambda until: chance.randrange(2_000))
    found = cover(state, 1_000)
    if chance.random() < 0.5 or not isinstance(found, Cover):
        return said
    covered = [(one.number, one.message) for one in said if one.number <= found.until]
    assert covered
    assert input_of(covered, render) is not None
    kept = [one for one in said if one.number > found.until]
    assert kept[0].is_plain
    return kept


def is_there(question: HistoryMessage, messages: tuple[Message, ...]) -> bool:
    texts = {
        sound(part.text)
        for part in question.message.parts
        if isinstance(part, Text) and part.text.strip()
    }
    shown = {part.text for one in messages for part in one.parts if isinstance(part, Text)}
    return texts <= shown


def test_a_damaged_history_becomes_a_valid_request_with_the_newest_user_message() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(COUNT):
        said = damaged(chance, intact(chance))
        running = TurnId("turn_now") if chance.random() < 0.8 else None
        pruning = chance.choice(PRUNINGS)
        messages = sent(left(chance, said), pruning, running)
        assert messages
        ended = messages if messages[-1].role == "user" else (*messages, user("more"))
        rule = refused(ModelRequest(("s",), ended, ()))
        assert rule is None, (rule, said)
        assert repair(messages) == messages
        newest = next(one for one in reversed(said) if one.is_plain)
        assert is_there(newest, messages), (newest, said)


def test_an_intact_history_is_sent_unchanged() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(COUNT // 10):
        said = intact(chance)
        messages = repair(tuple(one.message for one in said))
        assert refused(ModelRequest(("s",), messages, ())) is None
        joined = [part for message in messages for part in message.parts]
        assert joined == [part for one in said for part in one.message.parts]
        assert repair(messages) is messages
        assert sent(said, None, said[-1].turn) == messages
