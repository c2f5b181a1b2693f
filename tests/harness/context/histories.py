"""Random histories: as turns leave them, and then damaged in the ways that crashes, imports and bugs do."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from harness.context.history_message import HistoryMessage
from harness.messages.message import Message, Part, Text, Thinking, ToolCall, ToolResult, user
from harness.messages.model_request import ModelRequest
from tests.harness.messages_rules import broken_rule
from workspaces.ids import TurnId

ISSUED = {"S1": "hm", "S2": "so"}
"""Thinking by its signature."""

TEXTS = ("a", "bb " * 40, "ñ😀" * 150, "x" * 5_000, "<summary>\nall is well\n</summary>")
ODD_TEXTS = ("", " ", "\n\t", "\ud83d", "\ude00 and \ud83d\ude00", "\x00")
IDS = ("t1", "t2", "t3", "t4", "t1-2", "weird id: ü", "")
NAMES = ("bash", "read", "no name!", "x" * 200, "")
BLOCKS = (
    {"type": "thinking", "thinking": "hm", "signature": "S1"},
    {"type": "thinking", "thinking": "so", "signature": "S2"},
    {"type": "thinking", "thinking": "cut before it was signed", "signature": ""},
    {"type": "redacted_thinking", "data": "xyz"},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    {"type": "telepathy"},
)


def intact(chance: random.Random) -> list[HistoryMessage]:
    """The newest message is a user's, or holds results of tools."""
    said: list[HistoryMessage] = []
    calls = 0

    def add(turn: int, message: Message) -> None:
        said.append(HistoryMessage(len(said) + 1, TurnId(f"turn_{turn}"), message))

    count = chance.randint(1, 7)
    for turn in range(1, count + 1):
        add(turn, user(chance.choice(TEXTS)))
        for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
            own = [f"toolu_{calls + n}" for n in range(chance.choice((1, 1, 1, 3)))]
            calls += len(own)
            before: list[Part] = [Thinking(dict(BLOCKS[0]))] if chance.random() < 0.3 else []
            if chance.random() < 0.5:
                before.append(Text(chance.choice(TEXTS)))
            asked = [ToolCall(one, "bash", {"command": chance.choice(TEXTS)}) for one in own]
            add(turn, Message("assistant", (*before, *asked)))
            for one in own:
                error = chance.random() < 0.1
                add(turn, Message("user", (ToolResult(one, chance.choice(TEXTS), error),)))
        if turn < count:
            add(turn, Message("assistant", (Text(chance.choice(TEXTS)),)))
    return said


def damaged(chance: random.Random, said: Sequence[HistoryMessage]) -> list[HistoryMessage]:
    lines = list(said)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[chance.randrange(len(lines))])
            case 2:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = replace(lines[at], turn=TurnId(f"turn_{chance.randint(1, 3)}"))
            case 4:
                message = lines[at].message
                role = "user" if message.role == "assistant" else "assistant"
                lines[at] = replace(lines[at], message=Message(role, message.parts))
            case _:
                parts = list(lines[at].message.parts)
                parts.insert(chance.randint(0, len(parts)), _part(chance))
                if chance.random() < 0.3:
                    del parts[chance.randrange(len(parts))]
                message = Message(lines[at].message.role, tuple(parts))
                lines[at] = replace(lines[at], message=message)
    newest = HistoryMessage(0, TurnId("turn_now"), user("the newest question"))
    if chance.random() < 0.7:
        lines.append(newest)
    else:
        lines.insert(chance.randint(0, len(lines)), newest)
        lines.append(replace(newest, message=_results(chance)))
    return [replace(line, number=number) for number, line in enumerate(lines, 1)]


def refused(request: ModelRequest) -> str | None:
    """The rule of the provider that it breaks."""
    body = request.as_json()
    system = [{"type": "text", "text": text} for text in body["system"]]
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "no Unicode"
    body = {**body, "system": system, "model": "m", "max_tokens": 1, "stream": True}
    return broken_rule(body, ISSUED)


def _results(chance: random.Random) -> Message:
    return Message("user", tuple(ToolResult(one, "r") for one in chance.sample(IDS, 2)))


def _part(chance: random.Random) -> Part:
    match chance.randrange(4):
        case 0:
            return Text(chance.choice(ODD_TEXTS))
        case 1:
            arguments = {"a": chance.choice(ODD_TEXTS), "b": [chance.choice(TEXTS)]}
            return ToolCall(chance.choice(IDS), chance.choice(NAMES), arguments)
        case 2:
            text = chance.choice((*TEXTS, *ODD_TEXTS))
            return ToolResult(chance.choice(IDS), text, is_error=chance.random() < 0.5)
        case _:
            return Thinking(dict(chance.choice(BLOCKS)))
