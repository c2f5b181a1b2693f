"""Turns across processes: many events at once, kills at every point, a suspended lease holder."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.context.repair import INTERRUPTED, repair
from harness.learning.learning_jobs import LEARN
from harness.messages.message import Message, Part, ToolResult
from tests.harness.talk import (
    NOTES,
    Rule,
    assert_in_order,
    conversation_of,
    entries_of,
    follow,
    hold,
    kill_everywhere,
    many,
    opened,
    storm,
)
from tests.workspaces.actors import run, start

WAIT_S = 300.0

PROCESSES, EVENTS_EACH = 4, 50
STORM_PROCESSES = 16
STORM_EVENTS = 500
STORM_CONVERSATIONS = 20


def test_200_events_at_once_from_4_processes_are_answered_once_each_in_order(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    opened(home, Rule()).records.close()
    talkers = [
        start(many, str(home), f"p{number}", EVENTS_EACH, "c1", out=subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    replies = [json.loads(talker.communicate(timeout=WAIT_S)[0]) for talker in talkers]
    for number, told in enumerate(replies):
        assert told == [f"answer to p{number}-{k}" for k in range(EVENTS_EACH)]
    rooms = opened(home, Rule())
    events = assert_in_order(rooms, "c1")
    entries = entries_of(rooms, "c1")
    assert len(events) == PROCESSES * EVENTS_EACH
    assert [entry.message.text for entry in entries[1::2]] == [f"answer to {e}" for e in events]
    assert [one for one in rooms.jobs.list() if one.job.kind != LEARN] == []
    rooms.records.close()


def test_events_from_16_processes_have_a_single_effect_each_although_a_tenth_kill_their_process(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    home = tmp_path / "home"
    plan = (STORM_PROCESSES, STORM_EVENTS, STORM_CONVERSATIONS, seed)
    told = json.loads(run(storm, str(home), *plan, wait_s=WAIT_S))
    print(told)
    assert told["deaths"] >= STORM_EVENTS / 20, "too few died to prove anything"
    rooms = opened(home, Rule())
    events: list[str] = []
    for number in range(STORM_CONVERSATIONS):
        events += assert_in_order(rooms, f"c{number}")
        said = [entry.message.text for entry in entries_of(rooms, f"c{number}")]
        assert len(set(said)) == len(said), "something was said twice"
    assert sorted(events) == sorted(f"event-{number}" for number in range(STORM_EVENTS))
    rooms.records.close()


@pytest.mark.parametrize(
    ("permission", "way"), [("bypass", "delivered"), ("bypass", "served"), ("ask", "delivered")]
)
def test_a_turn_killed_at_every_point_is_resumed_and_completed_once(
    tmp_path: Path, permission: str, way: str
) -> None:
    """With `ask` it waits on its way, for approvals that come one by one. What is delivered begins in the
    batch that accepts it, and so has fewer points than what is served."""
    home, begun = tmp_path / "home", datetime.now(UTC).date()
    told = json.loads(run(kill_everywhere, str(home), permission, way, wait_s=WAIT_S))
    killed = [one for one in told if one["killed"]]
    print(f"{len(killed)} points")
    assert len(killed) >= 40
    assert not told[-1]["killed"], "the last one was to come through"
    rooms = opened(home, Rule())
    events = assert_in_order(rooms, "c1")
    said = [event for event in events if not event.startswith("allow-")]
    assert said == [one["event"] for one in told]
    if permission == "ask":
        allowed = [f"allow-toolu_{event}{which}" for event in said for which in NOTES]
        assert [event for event in events if event not in said] == allowed
    messages = tuple(entry.message for entry in entries_of(rooms, "c1"))
    assert parts_of(repair(messages)) == parts_of(messages), "the transcript had to be repaired"
    assert rooms.dispatcher.conversations.queue(conversation_of(rooms, "c1")).paused() is None
    for one in told:
        assert one["outcome"]["outcome"] == "done"
        assert one["outcome"]["reply"] == f"answer to {one['event']}"
        answers = [m for m in messages if m.text == f"answer to {one['event']}"]
        assert len(answers) == 1
    replies = [message for message in messages if message.role == "assistant"]
    noted = rooms.usage.report(since=begun, until=rooms.usage.ledger.today())
    assert noted.total.asked == len(replies), "what is stored was noted with it, and nothing else"
    results = [p for m in messages for p in m.parts if isinstance(p, ToolResult)]
    assert len(results) == len(NOTES) * len(told)
    interrupted = {result.call_id for result in results if result.text == INTERRUPTED}
    assert 0 < len(interrupted) < len(results) / 4
    log = rooms.workspaces.get("notes").log(limit=1000)
    made = Counter(path for revision in log for path in revision.paths)
    for note in (f"{one['event']}{which}" for one in told for which in NOTES):
        times = made[f"notes/{note}.md"]
        assert times == 1 or (times == 0 and f"toolu_{note}" in interrupted), note
    rooms.records.close()


@pytest.mark.parametrize("lease_s", [1.5, 10_000.0], ids=["knows its time", "knows no time"])
def test_a_lease_holder_suspended_past_its_lease_writes_nothing(
    tmp_path: Path, lease_s: float
) -> None:
    """The second one believes for hours that it holds: the guard alone stops it."""
    home = tmp_path / "home"
    opened(home, Rule()).records.close()
    holder = start(hold, str(home), lease_s, out=subprocess.PIPE)
    try:
        wait_for(home / "asked")
        holder.send_signal(signal.SIGSTOP)
        followed = json.loads(run(follow, str(home), 1.5, wait_s=WAIT_S))
        assert followed["reply"] == "answer to hello"
        before = stored(home)
        (home / "answer").touch()
        holder.send_signal(signal.SIGCONT)
        printed, _ = holder.communicate(timeout=WAIT_S)
    finally:
        holder.kill()
        holder.wait(timeout=30)
    assert json.loads(printed) == followed, "the answer it was told is the one that stands"
    assert stored(home) == before


def parts_of(messages: tuple[Message, ...]) -> list[Part]:
    return [part for message in messages for part in message.parts]


def stored(home: Path) -> list[str]:
    rooms = opened(home, Rule())
    lines = [json.dumps(entry.as_json()) for entry in entries_of(rooms, "c1")]
    rooms.records.close()
    return lines


def wait_for(file: Path) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not file.exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
