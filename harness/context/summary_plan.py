"""Compaction, as far as it is a matter of thought: what a summary is to cover, what its writer is given,
and whether what came back may stand for it.

A summary covers whole turns from the beginning of the window. The cut falls before a user's message, and
the newest two turns stay verbatim; only the newest one where nothing else could be covered, or where the
two alone are longer than the limit. So the newest message of a user is never covered, and no call is
parted from its result.

What may not stand for anything: nothing, what was cut, and what is longer than what it replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from harness.context.assemble import Numbered
from harness.context.fence import attribute, fenced
from harness.context.history_message import HistoryMessage, turns_of
from harness.context.part import Render
from harness.context.prune import shortened
from harness.context.repair import sound
from harness.messages.message import Message, Part, Text, Thinking, ToolCall, ToolResult
from harness.messages.model_request import ModelRequest, Reply
from workspaces.storage.records import JsonObject

VERBATIM_TURNS = 2

GROWTH_TENTHS = 11
"""Of the length at which a summary failed: before another one is tried."""

CHUNK_CHARACTERS_MAX = 400_000
"""What a writer is given at once: a hundred thousand tokens of prose fit into every model's window."""

CHUNK_CHARACTERS_MIN = 8_000
"""Below, a model that still finds it too long will never take it."""

CALL_CHARACTERS_MAX = 2_000
"""Of the input of a call, for the writer of a summary."""

WORDS_MAX = 1_500

_JSON = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Cover:
    """A summary is due, of all entries up to this one."""

    until: int


@dataclass(frozen=True, slots=True)
class SystemTooLong:
    """What stands beside the messages is over the limit on its own: no summary can help."""

    characters: int


@dataclass(frozen=True, slots=True)
class TurnTooLong:
    """There is nothing before the newest turn that a summary could stand for."""


Due = Cover | SystemTooLong | TurnTooLong


def due_json(found: Due) -> JsonObject:
    match found:
        case Cover(until):
            return {"kind": "summary", "covers": until}
        case SystemTooLong(characters):
            return {"kind": "system_too_long", "characters": characters}
        case TurnTooLong():
            return {"kind": "turn_too_long"}
        case _:
            assert_never(found)


@dataclass(frozen=True, slots=True)
class SummaryState:
    """How things are when a request is about to be made."""

    said: Sequence[HistoryMessage]
    characters: int
    """Of the request."""
    system_characters: int
    """Of the request without its messages."""
    length_after: Callable[[int], int]
    """How many characters are left without the messages up to an entry."""
    failed_at: int = 0
    """How long it was when a summary failed."""


def due(state: SummaryState, characters_max: int) -> Due | None:
    """What is to be done about a context that is strictly longer than the limit; None: nothing now."""
    if state.characters <= characters_max:
        return None
    if state.system_characters > characters_max:
        return SystemTooLong(state.system_characters)
    return cover(state, characters_max) if has_grown(state) else None


def has_grown(state: SummaryState) -> bool:
    """Whether a summary may be tried, after one that failed."""
    return 10 * state.characters >= GROWTH_TENTHS * state.failed_at


def cover(state: SummaryState, characters_max: int) -> Cover | TurnTooLong:
    """What a summary is to cover, whether or not one is due."""
    cuts = _cuts(state.said)
    if not cuts:
        return TurnTooLong()
    until = cuts[-1] if len(cuts) < VERBATIM_TURNS else cuts[-VERBATIM_TURNS]
    return Cover(until if state.length_after(until) <= characters_max else cuts[-1])


def _cuts(said: Sequence[HistoryMessage]) -> list[int]:
    """The entries up to which something can be covered: before each turn that begins with a user's
    message, but the first, up to the one with the newest such message."""
    newest = max((at for at, one in enumerate(said) if one.is_plain), default=0)
    cuts: list[int] = []
    at = 0
    for turn in turns_of(said):
        if 0 < at <= newest and turn[0].is_plain:
            cuts.append(said[at - 1].number)
        at += len(turn)
    return cuts


def input_of(messages: Sequence[Numbered], render: Render) -> list[str]:
    """What the writer is given to read, message by message. Its thinking the model keeps to itself."""
    left_out = _left_out(render)
    texts = (_as_text(message, left_out) for _, message in messages)
    return [text for text in texts if text]


def chunk(texts: Sequence[str], characters_max: int) -> tuple[str, list[str]]:
    """As much as may be read at once, and the rest."""
    taken, length = 0, 0
    while taken < len(texts) and length + len(texts[taken]) <= characters_max:
        length += len(texts[taken]) + 2
        taken += 1
    if taken:
        return "\n\n".join(texts[:taken]), [*texts[taken:]]
    head, tail = texts[0][:characters_max], texts[0][characters_max:]
    return head, [tail, *texts[1:]]


def question_to_writer(text: str, earlier: str | None, render: Render) -> ModelRequest:
    told = render("compaction/input.md", text=text, earlier=fenced(earlier) if earlier else None)
    system = render("compaction/system.md", words=WORDS_MAX)
    return ModelRequest((system,), (Message("user", (Text(told),)),), ())


@dataclass(frozen=True, slots=True)
class Unusable:
    """What came back cannot stand for anything."""

    reason: str


def usable(reply: Reply, text: str, earlier: str | None) -> str | Unusable:
    """The summary, given what its writer has read."""
    summary = sound(reply.message.text).strip()
    if not summary:
        return Unusable("the summary is empty")
    if not reply.is_complete:
        return Unusable("the summary was cut at the limit of output tokens")
    if len(summary) > len(text) + len(earlier or ""):
        return Unusable("the summary is longer than what it was to replace")
    return summary


def _left_out(render: Render) -> Callable[[int], str]:
    return lambda count: f"\n{render('prompt/left-out.md', count=f'{count:,}', id='')}\n"


def _as_text(message: Message, left_out: Callable[[int], str]) -> str:
    """Between tags that nothing in it can close."""
    lines = [line for part in message.parts if (line := _line(part, message.role, left_out))]
    return "\n".join(lines)


def _line(part: Part, role: str, left_out: Callable[[int], str]) -> str:
    match part:
        case Text(text):
            return f"<{role}>\n{fenced(text)}\n</{role}>" if text.strip() else ""
        case ToolCall(_, name, arguments):
            told = shortened(_JSON.encode(arguments), CALL_CHARACTERS_MAX, left_out)
            return f'<tool-call name="{attribute(name)}">\n{fenced(told)}\n</tool-call>'
        case ToolResult(_, text, is_error):
            return f"<tool-result{' failed' if is_error else ''}>\n{fenced(text)}\n</tool-result>"
        case Thinking():
            return ""
        case _:
            assert_never(part)
