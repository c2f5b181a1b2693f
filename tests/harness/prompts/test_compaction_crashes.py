"""A process killed at every point of a compaction: at each store and model call and in each flush tool.

The next lease holder finds the conversation before the summary or after it, never between.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.agents.record import AgentRecord
from harness.context.repair import repair
from harness.messages.message import Message, Part, Text, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply, Usage
from harness.messages.progress import Emit, Progress
from harness.models.port import Model
from harness.turns.preview import preview
from tests.harness.context.histories import refused
from tests.harness.talk import (
    Deadly,
    assert_in_order,
    conversation_of,
    delivered,
    entries_of,
    forked,
    ingress_of,
    opened,
)
from tests.workspaces.actors import run

WAIT_S = 300.0
TURNS = 3


class Compacted:
    """Answers, writes one line a flush, and summarises by saying which questions it has read about."""

    name = "rule"

    def __init__(self, point: Any = lambda: None) -> None:
        self._point = point

    async def reply(self, request: ModelRequest, *, output_tokens_max: int, emit: Emit) -> Reply:
        self._point()
        said = request.messages[-1].text
        parts: tuple[Part, ...]
        if request.system[0].startswith("You keep the record"):
            parts = (Text("S: " + " ".join(w for w in said.split() if w.startswith("question-"))),)
        elif "is about to be replaced by a summary" in said:
            call = ToolCall("toolu_flush", "write", {"path": "notes/kept.md", "content": said})
            parts = (Text("Noting."), call)
        else:
            parts = (Text("an answer"),)
        self._point()
        return Reply(Message("assistant", parts), Usage(1, 1))


def kill_everywhere(home: str) -> None:
    """In one conversation after the other the turn that compacts is killed one point later."""
    rooms = opened(home, Compacted())
    told: list[dict[str, Any]] = []
    for number in range(300):
        key = f"c{number}"
        agent = rooms.agents.get("assistant")
        for turn in range(1, TURNS + 1):
            asyncio.run(
                delivered(rooms.dispatcher, f"{key}-{turn}", key, f"question-{turn} of {key}")
            )
        newest = f"question-{TURNS + 1} of {key}"
        question = preview(rooms.dispatcher, agent, conversation=key, message=newest)
        limit(rooms.agents, question.length.characters - 1)

        def first(number: int = number, key: str = key, newest: str = newest) -> None:
            deadly = Deadly(rooms.records)
            deadly.die_at = number

            def open_model(agent: AgentRecord, *_: Any) -> Model:
                return Compacted(deadly.point)

            def at_a_tool(progress: Progress) -> None:
                deadly.point()

            ingress = replace(ingress_of(rooms, records=deadly), open_model=open_model)
            asyncio.run(delivered(ingress, f"{key}-new", key, newest, at_a_tool))

        def second(key: str = key, newest: str = newest) -> None:
            outcome = asyncio.run(delivered(ingress_of(rooms), f"{key}-new", key, newest))
            (Path(home) / f"outcome-{key}").write_text(json.dumps(outcome.as_json()))

        was_killed = not forked(first)
        assert forked(second)
        limit(rooms.agents, 500_000)
        told.append({"key": key, "killed": was_killed})
        if not was_killed:
            break
    print(json.dumps(told))


def limit(agents: Any, characters_max: int) -> None:
    compaction = {"enabled": True, "maxContextLength": characters_max}
    agents.patch("assistant", {"config": {"session": {"compaction": compaction}}})


def test_a_compaction_killed_at_every_point_is_either_complete_or_absent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    told = json.loads(run(kill_everywhere, str(home), wait_s=WAIT_S))
    killed = [one for one in told if one["killed"]]
    print(f"{len(killed)} points")
    assert len(killed) >= 35
    assert not told[-1]["killed"], "the last one was to come through"
    rooms = opened(home, Compacted())
    flushes = 0
    for one in told:
        key = one["key"]
        outcome = json.loads((home / f"outcome-{key}").read_text())
        assert (outcome["outcome"], outcome["reply"]) == ("done", "an answer"), key
        assert [one["kind"] for one in outcome["context"]] == ["compacted"], key
        assert_in_order(rooms, key)
        entries = entries_of(rooms, key)
        transcript = rooms.conversations.transcript(conversation_of(rooms, key))
        session = transcript.session()
        (summary,) = [entry for entry in entries if entry.kind == "summary"]
        assert (session.window_from, session.summary) == (5, summary.number), key
        assert summary.covers == 4
        assert summary.message.text == "S: question-1 question-2"
        said = [entry.message for entry in entries if entry.kind == "said"]
        assert len(said) == 2 * (TURNS + 1)
        assert repair(tuple(said)) == tuple(said)
        flush = [entry for entry in entries if entry.kind == "flush"]
        assert len([e for e in flush if e.message.role == "assistant"]) == 1, key
        results = [p for e in flush for p in e.message.parts if isinstance(p, ToolResult)]
        assert len(results) <= 1
        flushes += len(results)
        request = preview(
            rooms.dispatcher, rooms.agents.get("assistant"), conversation=key, message="and now?"
        ).request
        shown = [part.text for m in request.messages for part in m.parts if isinstance(part, Text)]
        assert shown[-3:] == [f"question-{TURNS + 1} of {key}", "an answer", "and now?"]
        assert "S: question-1 question-2" in request.system[-1]
        assert refused(replace(request, tools=())) is None
    assert flushes > len(told) / 2
    made = [revision.paths for revision in rooms.workspaces.get("notes").log(limit=1000)]
    assert 0 < sum("notes/kept.md" in paths for paths in made) <= len(told)
    rooms.records.close()
