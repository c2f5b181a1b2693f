"""Pruning: what of a conversation's tool traffic is shown. A projection: what is stored stays as it is.

The turn that runs is shown as it happened. A turn that has ended is changed once and from then on is the
same, byte for byte, so that the provider's cache holds: its thinking is left out, with whatever else only
the provider can read, and each result of a tool is shortened to a head and a tail with the id under which
`read_result` shows the whole. When so many further turns have ended, its calls and results may go
altogether, and only what was said stays. That costs the cache of all that stands behind them. So they go
with the next snapshot of the prompt, which costs the same anyway, and which says from where on traffic is
shown (`traffic_from`); when enough of it may go, that is a reason for a snapshot. Between two snapshots
nothing moves.

Inputs of calls are never shortened, however long: a model takes its own calls for examples of how to call.

*Hard* is what is done once a provider refuses the request as too long: no traffic but the running turn's,
and of everything long a head and a tail. The newest message of a user stays whole.
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
"""Of a result, when its turn has ended; with the words about what was left out."""

TURNS = 10
"""How many further turns the traffic of one stays for, unless the agent says otherwise."""

HARD_CHARACTERS_MAX = 4_000
"""Of a text or a result, when it is to be as short as it may."""

ID_CHARACTERS_MAX = 200
"""What `read_result` takes as an id."""

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
    said: Sequence[HistoryMessage],
    pruning: Pruning | None,
    render: Render,
    *,
    running: TurnId | None,
    traffic_from: int = 0,
) -> tuple[Numbered, ...]:
    """None: all is shown. `running`: the turn that is left untouched; `traffic_from`: the number from
    which on calls and results are shown, as the snapshot has it."""
    if pruning is None:
        return tuple((one.number, one.message) for one in said)
    words = _words(render)
    shown: list[HistoryMessage] = []
    for turn in turns_of(said):
        if turn[0].turn == running:
            shown += turn
        elif pruning.prune_all or turn[0].number < traffic_from:
            shown += map(_without_traffic, turn)
        else:
            shown += (_ended(one, words) for one in turn)
    kept = [one for one in shown if one.message.parts]
    if not pruning.prune_all:
        return tuple((one.number, one.message) for one in kept)
    newest = next((one.number for one in reversed(said) if one.is_plain), None)
    return tuple(
        (one.number, one.message if one.number == newest else _short_message(one, words, running))
        for one in kept
    )


def leaving(
    said: Sequence[HistoryMessage],
    pruning: Pruning | None,
    render: Render,
    *,
    running: TurnId | None,
    traffic_from: int,
) -> Leaving:
    """What of the traffic that is shown from a number on would be left out by another snapshot."""
    if pruning is None:
        return NOTHING_LEAVES
    ended = [turn for turn in turns_of(said) if turn[0].turn != running]
    gone = ended[: max(0, len(ended) - pruning.turns)]
    if not gone:
        return NOTHING_LEAVES
    words = _words(render)
    shown = (one for turn in gone if turn[0].number >= traffic_from for one in turn)
    parts = (part for one in shown for part in _ended(one, words).message.parts)
    return Leaving(gone[-1][-1].number + 1, sum(map(_traffic, parts)))


def shortened(text: str, characters_max: int, left_out: Callable[[int], str]) -> str:
    """A head and a tail, with words on how many characters are left out between them."""
    if len(text) <= characters_max:
        return text
    room = max(0, characters_max - len(left_out(len(text))))
    head = (room + 1) // 2
    return text[:head] + left_out(len(text) - room) + text[len(text) - (room - head) :]


@cache
def _words(render: Render) -> _Words:
    return _Words(render)


class _Words:
    """Put together from templates once, not for each of ten thousand results."""

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
    """In characters of the request's JSON, as its limit counts them."""
    return len(_JSON.encode(part_as_json(part))) if isinstance(part, ToolCall | ToolResult) else 0


def _ended(one: HistoryMessage, words: _Words) -> HistoryMessage:
    """As it is shown once its turn has ended."""
    parts = tuple(
        _result(part, RESULT_CHARACTERS_MAX, words) if isinstance(part, ToolResult) else part
        for part in one.message.parts
        if not isinstance(part, Thinking)
    )
    return one if parts == one.message.parts else _with_parts(one, parts)


def _without_traffic(one: HistoryMessage) -> HistoryMessage:
    return _with_parts(one, tuple(part for part in one.message.parts if isinstance(part, Text)))


def _result(result: ToolResult, characters_max: int, words: _Words) -> ToolResult:
    if len(result.text) <= characters_max:
        return result
    text = shortened(result.text, characters_max, words.of_result(result.call_id))
    return replace(result, text=text)


def _short_message(one: HistoryMessage, words: _Words, running: TurnId | None) -> Message:
    parts = tuple(_short(part, words, one.turn == running) for part in one.message.parts)
    return Message(one.message.role, parts)


def _short(part: Part, words: _Words, is_running: bool) -> Part:
    """What the model has said in the turn that runs is left as it is: its thinking belongs to it."""
    match part:
        case ToolResult():
            return _result(part, HARD_CHARACTERS_MAX, words)
        case Text(text) if not is_running:
            return Text(shortened(text, HARD_CHARACTERS_MAX, words.of_text))
        case _:
            return part


def _with_parts(one: HistoryMessage, parts: tuple[Part, ...]) -> HistoryMessage:
    return replace(one, message=Message(one.message.role, parts))
