"""Pruning: decides which tool calls and results of a conversation the model sees. Stored entries never
change.

The running turn is shown as it happened. An ended turn is changed once and then stays the same, byte for
byte, so that the provider's cache stays valid. Its thinking is left out, with everything else that only the
provider can read. A reminder beside a message stays and leaves with the traffic of its turn. Each tool result
is shortened to a head and a tail, with the id under which `read_result`
shows the whole. After `turns` further turns have ended, its calls and results may be left out entirely; only
its texts stay. That invalidates the cache of everything behind them. So they are removed together with the
next snapshot of the prompt, which has the same cost anyway. The snapshot states from which entry on calls and
results are shown (`traffic_from`). If enough of them may go, that is a reason for a snapshot. Nothing is
removed between two snapshots.

Inputs of calls are never shortened, however long, because a model imitates its own calls.

*Hard* pruning is used after a provider refuses the request as too long. It shows calls and results only of
the running turn, and a head and a tail of every long text. The newest message of a user stays whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from harness.context.assemble import Numbered
from harness.context.history_message import HistoryMessage, turns_of
from harness.context.part import Render
from harness.context.snapshot import NOTHING_LEAVES, Leaving
from harness.messages.message import (
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    part_as_json,
)
from workspaces.ids import TurnId
from workspaces.storage.records import JsonObject

RESULT_CHARACTERS_MAX = 400
"""Characters of a tool result after its turn has ended, including the note about the omitted part."""

TURNS = 10
"""Further turns for which the calls and results of a turn stay, unless the agent sets another number."""

HARD_CHARACTERS_MAX = 4_000
"""Characters of a text or a result under hard pruning."""

ID_CHARACTERS_MAX = 200
"""The longest id that `read_result` accepts."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Pruning:
    turns: int = TURNS
    prune_all: bool = False

    def as_json(self) -> JsonObject:
        return {"turns": self.turns, **({"hard": True} if self.prune_all else {})}


def pruning_of(data: JsonObject) -> Pruning:
    return Pruning(data["turns"], data.get("hard", False))


def prune(
    history: Sequence[HistoryMessage],
    pruning: Pruning | None,
    render: Render,
    *,
    running: TurnId | None,
    traffic_from: int = 0,
) -> tuple[Numbered, ...]:
    """Return the messages as the model sees them.

    `pruning` None shows everything. The turn `running` is left untouched. Calls and results are shown from
    entry number `traffic_from` on, as the snapshot states.
    """
    if pruning is None:
        return tuple((one.number, one.shown) for one in history)
    words = _words(render)
    shown: list[HistoryMessage] = []
    for turn in turns_of(history):
        if turn[0].turn == running:
            shown += turn
        elif pruning.prune_all or turn[0].number < traffic_from:
            shown += map(_without_traffic, turn)
        else:
            shown += (_ended(one, words) for one in turn)
    kept = [one for one in shown if one.message.parts]
    if not pruning.prune_all:
        return tuple((one.number, one.shown) for one in kept)
    newest = next((one.number for one in reversed(history) if one.is_plain), None)
    return tuple(
        (one.number, one.shown if one.number == newest else _short_message(one, words, running))
        for one in kept
    )


def leaving(
    history: Sequence[HistoryMessage],
    pruning: Pruning | None,
    render: Render,
    *,
    running: TurnId | None,
    traffic_from: int,
) -> Leaving:
    """Return the calls and results that are shown now and that a new snapshot would leave out."""
    if pruning is None:
        return NOTHING_LEAVES
    ended = [turn for turn in turns_of(history) if turn[0].turn != running]
    dropped_turns = ended[: max(0, len(ended) - pruning.turns)]
    if not dropped_turns:
        return NOTHING_LEAVES
    words = _words(render)
    shown = [one for turn in dropped_turns if turn[0].number >= traffic_from for one in turn]
    parts = (part for one in shown for part in _ended(one, words).message.parts)
    characters = sum(map(_traffic, parts)) + sum(len(one.reminder) for one in shown)
    return Leaving(dropped_turns[-1][-1].number + 1, characters)


def shortened(text: str, characters_max: int, left_out: Callable[[int], str]) -> str:
    """Return a head and a tail of the text, with a note between them on how many characters are left out."""
    if len(text) <= characters_max:
        return text
    room = max(0, characters_max - len(left_out(len(text))))
    head = (room + 1) // 2
    return text[:head] + left_out(len(text) - room) + text[len(text) - (room - head) :]


@cache
def _words(render: Render) -> _Words:
    return _Words(render)


class _Words:
    """The notes about omitted text. They are rendered once, not for each of ten thousand results."""

    def __init__(self, render: Render) -> None:
        self._text = f"\n{render('prompt/left-out.md', count='{count}', id='')}\n"
        self._result = f"\n{render('prompt/left-out.md', count='{count}', id='{id}')}\n"

    def of_text(self, count: int) -> str:
        return self._text.format(count=f"{count:,}")

    def of_result(self, call_id: str) -> Callable[[int], str]:
        if len(call_id) > ID_CHARACTERS_MAX:
            return self.of_text
        return lambda count: self._result.format(count=f"{count:,}", id=call_id)


def _traffic(part: Part) -> int:
    """Return the characters that a call or result takes in the request's JSON, as the limit counts them."""
    return len(_JSON.encode(part_as_json(part))) if isinstance(part, ToolCall | ToolResult) else 0


def _ended(one: HistoryMessage, words: _Words) -> HistoryMessage:
    """Return the message as it is shown after its turn has ended."""
    parts = tuple(
        _result(part, RESULT_CHARACTERS_MAX, words) if isinstance(part, ToolResult) else part
        for part in one.message.parts
        if not isinstance(part, Thinking)
    )
    return one if parts == one.message.parts else _with_parts(one, parts)


def _without_traffic(one: HistoryMessage) -> HistoryMessage:
    texts = tuple(part for part in one.message.parts if isinstance(part, Text))
    return replace(_with_parts(one, texts), reminder="")


def _result(result: ToolResult, characters_max: int, words: _Words) -> ToolResult:
    if len(result.text) <= characters_max:
        return result
    text = shortened(result.text, characters_max, words.of_result(result.call_id))
    return replace(result, text=text)


def _short_message(one: HistoryMessage, words: _Words, running: TurnId | None) -> Message:
    parts = tuple(_short(part, words, one.turn == running) for part in one.shown.parts)
    return Message(one.message.role, parts)


def _short(part: Part, words: _Words, is_running: bool) -> Part:
    """Return the part shortened. Texts of the running turn stay whole, because the model's thinking refers to
    them."""
    match part:
        case ToolResult():
            return _result(part, HARD_CHARACTERS_MAX, words)
        case Text(text) if not is_running:
            return Text(shortened(text, HARD_CHARACTERS_MAX, words.of_text))
        case _:
            return part


def _with_parts(one: HistoryMessage, parts: tuple[Part, ...]) -> HistoryMessage:
    return replace(one, message=Message(one.message.role, parts))
